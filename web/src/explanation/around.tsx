// The circuit around this attention: who wrote what it reads, and, through MLPs, what those had read.
import { useMemo, useState } from 'preact/hooks';
import type { NodeKind } from '../circuit/document';
import type { Graph, GraphEdge, GraphNode } from '../circuit/graph';
import { quoted, rowOf } from '../circuit/graph';
import { LineKey, Picture } from '../circuit/picture';
import { Figure } from '../kit/figure';
import { Numbers } from '../kit/numbers';
import { Tok } from '../kit/tokens';
import type { ExplanationDocument, Side, Writer } from './document';
import { SIDES } from './document';
import { layerOf, spoken } from './names';

const PER_SIDE = 5;
const PER_MLP = 3;
const LEAST = 0.05;

const kindOf = (writer: string): NodeKind => (/^L\d+H\d+$/.test(writer) ? 'head' : writer.startsWith('MLP') ? 'mlp' : writer.startsWith('bias') ? 'bias' : writer === 'offset' ? 'offset' : 'embedding');

/** The strongest helpers of each side and all of the cause; for an MLP among them what it mostly read. */
export const around = (data: ExplanationDocument): Graph => {
  const nodes = new Map<string, GraphNode>();
  const edges: GraphEdge[] = [];
  const firing = `${data.head}@${data.query}<-${data.key}`;
  const add = ({ writer, reads }: Writer, at: number): string => {
    const id = reads === null ? `${writer}@${at}` : `${writer}@${at}<-${reads}`;
    const kind = kindOf(writer);
    const row = kind === 'offset' ? 2 * layerOf(data.head) - 0.5 : rowOf({ kind, layer: layerOf(writer) });
    const sub = reads === null ? '' : reads === at ? 'reads itself' : `reads ${quoted(data.tokens, reads, 9)} ${reads}`;
    if (!nodes.has(id)) nodes.set(id, { id, kind, row, at, reads, title: spoken(writer), sub, attention: null, size: 1 });
    return id;
  };
  add({ writer: data.head, reads: data.key }, data.query);
  const root = nodes.get(firing);
  if (root) nodes.set(firing, { ...root, kind: 'firing', attention: data.attention });
  const join = (source: string, target: string, line: GraphEdge['line'], weight: number) => {
    if (source !== target) edges.push({ id: `${source}|${target}|${line}`, source, target, line, unit: 'attention', weight, channels: [], numbered: true, size: 1 });
  };
  for (const side of SIDES) {
    const at = side === 'query' ? data.query : data.key;
    const named = data.who.filter((row) => row.side === side && row.writer !== 'others' && row.log_odds > 0);
    for (const row of named.filter((one, i) => i < PER_SIDE || one.cause)) {
      const id = add(row, at);
      const node = nodes.get(id);
      if (node && row.cause) nodes.set(id, { ...node, marked: true });
      join(id, firing, side, row.log_odds);
      const parts = row.through.filter((one) => !['others', 'constants'].includes(one.writer) && one.log_odds >= LEAST * row.log_odds);
      for (const one of [...parts].sort((a, b) => b.log_odds - a.log_odds).slice(0, PER_MLP)) join(add(one, at), id, 'account', one.log_odds);
    }
  }
  // One MLP may be unfolded on both sides of one token.
  return { nodes, edges: [...new Map(edges.map((e) => [e.id, e])).values()] };
};

export const Around = ({ data }: { data: ExplanationDocument }) => {
  const graph = useMemo(() => around(data), [data]);
  const [pinned, setPinned] = useState<string | null>(null);
  const accounts = graph.edges.some((e) => e.line === 'account');
  const side = (line: string): Side => (line === 'key' ? 'key' : 'query');
  if (!graph.edges.length) return null;
  return (
    <section class="around">
      <h2>The circuit around it</h2>
      <p class="soft">The strongest helpers on both sides{accounts ? ', and what the MLPs among them had mostly read' : ''}: tokens from left to right, layers from the bottom up. Width: log-odds; thick frames: the cause.</p>
      <Figure>
        <LineKey lines={accounts ? ['query', 'key', 'account'] : ['query', 'key']} />
        <Picture graph={graph} pinned={pinned} onPin={setPinned} label={`The circuit around ${data.head}`} meaning={{ query: 'query side, log-odds', key: 'key side, log-odds', account: 'account through an MLP, log-odds' }} />
        <Numbers
          columns={['from', 'at', 'read', 'to', 'log-odds']}
          rows={graph.edges.map((e) => {
            const [from, to] = [graph.nodes.get(e.source), graph.nodes.get(e.target)];
            return [from?.title, from?.at === null || from === undefined ? '' : <Tok at={from.at} />, from?.reads === null || from === undefined ? '' : <Tok at={from.reads} />, e.line === 'account' ? to?.title : `${side(e.line)} side of ${to?.title}`, e.weight];
          })}
        />
      </Figure>
    </section>
  );
};
