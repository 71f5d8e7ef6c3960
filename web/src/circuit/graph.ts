// A graph to draw: from a circuit file or from an explanation, whole or in part, single nodes or groups of them.
import { isolated, plural, short, visible } from '../text';
import type { CircuitDocument, CircuitEdge, CircuitNode, EdgeKind, NodeKind, Unit } from './document';

export interface GraphNode {
  id: string;
  kind: NodeKind | 'group' | 'firing';
  /** A row of the drawing: twice the layer, one more for its MLP. */
  row: number;
  /** The token under which it is drawn, and the token that it reads; null for a group of several. */
  at: number | null;
  reads: number | null;
  title: string;
  /** A second line: what it reads, or how many it stands for. */
  sub: string;
  attention: number | null;
  size: number;
  /** One of those that a page singles out. */
  marked?: boolean;
  /** What names are about it. */
  names?: readonly string[] | undefined;
}

/** What an edge says: a side that it was removed from, an account through an MLP, or a share of the answer. */
export type Line = 'query' | 'key' | 'account' | 'answer';

export interface GraphEdge {
  id: string;
  source: string;
  target: string;
  line: Line;
  /** Attention and shares of the answer are not on one scale. */
  unit: Unit;
  weight: number;
  channels: readonly number[];
  /** Whether they go by number: most channels of a balanced basis change with its texts. */
  numbered: boolean;
  names?: readonly string[] | undefined;
  share?: number | undefined;
  size: number;
}

export interface Graph {
  nodes: Map<string, GraphNode>;
  edges: readonly GraphEdge[];
}

export type Grouping = 'none' | 'layer' | 'head' | 'token';
export const ANSWER_ROW = 1e6;

export const nameOf = (n: { kind: NodeKind; layer: number; head?: number | null }): string =>
  n.kind === 'head' ? `L${n.layer}H${n.head}` : n.kind === 'mlp' ? `MLP ${n.layer}` : n.kind === 'bias' ? `bias ${n.layer}` : n.kind === 'offset' ? 'own bias' : n.kind;

export const rowOf = (n: { kind: NodeKind; layer: number }): number =>
  n.kind === 'answer' ? ANSWER_ROW : n.layer < 0 || n.kind === 'embedding' ? -1 : 2 * n.layer + (n.kind === 'mlp' ? 1 : 0);

export const rowName = (row: number): string => (row === ANSWER_ROW ? 'answer' : row < 0 ? 'embedding' : row % 1 ? 'own bias' : row % 2 ? `MLP ${(row - 1) / 2}` : `layer ${row / 2}`);

/** A token as a label in a drawing quotes it. */
export const quoted = (tokens: readonly string[], at: number, most = 12): string => isolated(short(visible(tokens[at] ?? '?'), most));

/** Some channels by their numbers, or how many there are where numbers mean nothing. */
export const channelsOf = ({ channels, numbered }: Pick<GraphEdge, 'channels' | 'numbered'>, most = Infinity): string => {
  if (!numbered) return channels.length ? `${channels.length} unnumbered` : '';
  return `${channels.slice(0, most).join(', ')}${channels.length > most ? ', …' : ''}`;
};

export const kindOf = (edge: CircuitEdge): EdgeKind => edge.kind ?? 'causal';

export const graphOf = (data: CircuitDocument): Graph => {
  const node = (n: CircuitNode): GraphNode => ({
    id: n.id,
    kind: n.kind,
    row: rowOf(n),
    at: data.family ? null : n.query,
    reads: n.kind === 'head' && !data.family ? n.key : null,
    title: n.kind === 'answer' ? (data.answer === null ? 'answer' : isolated(short(visible(data.answer), 14))) : nameOf(n),
    sub: n.kind === 'head' && !data.family ? (n.key === n.query ? 'reads itself' : `reads ${quoted(data.tokens, n.key, 9)} ${n.key}`) : '',
    attention: n.attention,
    names: n.names,
    size: 1,
  });
  const nodes = new Map(data.nodes.map((n) => [n.id, node(n)]));
  const numbered = data.basis?.kind !== 'balanced';
  const edges = data.edges
    .filter((e) => nodes.has(e.source) && nodes.has(e.target))
    .map((e, i): GraphEdge => {
      const line: Line = kindOf(e) === 'account' ? 'account' : nodes.get(e.target)?.kind === 'answer' ? 'answer' : e.side === 'key' ? 'key' : 'query';
      const unit = e.unit ?? (line === 'answer' ? 'answer' : 'attention');
      return { id: `e${i}`, source: e.source, target: e.target, line, unit, weight: e.weight ?? 0, channels: e.channels, numbered, names: e.names, share: e.share, size: 1 };
    });
  return { nodes, edges };
};

const into = (edges: readonly GraphEdge[]): Map<string, GraphEdge[]> => {
  const made = new Map<string, GraphEdge[]>();
  for (const edge of edges) made.set(edge.target, [...(made.get(edge.target) ?? []), edge]);
  return made;
};

/** Nodes that nothing reads: where the drawing begins. In a circuit that is the answer. */
export const roots = (graph: Graph): string[] => {
  const answers = [...graph.nodes.values()].filter((n) => n.kind === 'answer' || n.kind === 'firing').map((n) => n.id);
  if (answers.length) return answers;
  const read = new Set(graph.edges.map((e) => e.source));
  return [...graph.nodes.keys()].filter((id) => !read.has(id));
};

/**
 * The first edges that a person should see, from the roots downwards. An edge counts by its share of what flows into its
 * target times what that target counts, so shares of the answer and attention never have to be compared; whatever is
 * chosen hangs together.
 */
export const opening = (graph: Graph, most: number): Set<string> => {
  const incoming = into(graph.edges);
  const counts = new Map<string, number>(roots(graph).map((id) => [id, 1]));
  const frontier = new Map<string, number>();
  const reach = (id: string, count: number) => {
    const list = incoming.get(id) ?? [];
    for (const unit of ['attention', 'answer'] as const) {
      const same = list.filter((e) => e.unit === unit);
      const total = same.reduce((a, e) => a + Math.abs(e.weight), 0) || 1;
      for (const edge of same) frontier.set(edge.id, (count * Math.abs(edge.weight)) / total);
    }
  };
  const byId = new Map(graph.edges.map((e) => [e.id, e]));
  for (const [id, count] of counts) reach(id, count);
  const chosen = new Set<string>();
  while (chosen.size < most && frontier.size) {
    const [id, count] = [...frontier].reduce((best, one) => (one[1] > best[1] ? one : best));
    frontier.delete(id);
    chosen.add(id);
    const source = byId.get(id)?.source;
    if (source !== undefined && !counts.has(source)) {
      counts.set(source, count);
      reach(source, count);
    }
  }
  return chosen;
};

/** The part of a graph that some edges span; roots always stay. */
export const part = (graph: Graph, keep: (edge: GraphEdge) => boolean): Graph => {
  const edges = graph.edges.filter(keep);
  const alive = new Set([...roots(graph), ...edges.flatMap((e) => [e.source, e.target])]);
  return { nodes: new Map([...graph.nodes].filter(([id]) => alive.has(id))), edges };
};

/** One node for all that share a layer, a head or a token; edges between the same two become one, those inside go. */
export const grouped = (graph: Graph, by: Grouping): Graph => {
  if (by === 'none') return graph;
  const home = (n: GraphNode): string => {
    if (n.kind === 'answer') return n.id;
    if (by === 'token') return `token ${n.at}`;
    return by === 'layer' ? `layer ${Math.floor(n.row / 2)}` : `${n.title} ${n.row}`;
  };
  const members = new Map<string, GraphNode[]>();
  const of = new Map<string, string>();
  for (const n of graph.nodes.values()) {
    const id = home(n);
    of.set(n.id, id);
    members.set(id, [...(members.get(id) ?? []), n]);
  }
  const nodes = new Map(
    [...members].map(([id, list]): [string, GraphNode] => {
      const first = list[0] as GraphNode;
      if (first.kind === 'answer' || (by === 'head' && list.length === 1)) return [id, { ...first, id }];
      const layer = Math.floor(first.row / 2);
      const row = by === 'token' ? 0 : by === 'layer' ? 2 * layer : first.row;
      const places = plural(list.length, by === 'head' ? 'place' : 'node');
      const title = by === 'layer' ? (layer < 0 ? 'embedding' : `layer ${layer}`) : by === 'head' ? first.title : places;
      return [id, { id, kind: 'group', row, at: by === 'token' ? first.at : null, reads: null, title, sub: by === 'token' ? '' : places, attention: null, size: list.length }];
    }),
  );
  const edges = new Map<string, GraphEdge>();
  for (const e of graph.edges) {
    const [source, target] = [of.get(e.source) as string, of.get(e.target) as string];
    if (source === target) continue;
    const id = `${source}|${target}|${e.line}|${e.unit}`;
    const known = edges.get(id);
    edges.set(id, known ? { ...known, weight: known.weight + e.weight, size: known.size + 1, channels: [...new Set([...known.channels, ...e.channels])], names: [...new Set([...(known.names ?? []), ...(e.names ?? [])])] } : { ...e, id, source, target });
  }
  return { nodes, edges: [...edges.values()] };
};
