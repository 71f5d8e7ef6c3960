// Nodes of a circuit that a person has named: those of one name can be drawn as one box.
import type { Graph, GraphEdge, GraphNode } from '../circuit/graph';
import { plural } from '../text';

/** From a node's id to its name. */
export type Names = ReadonlyMap<string, string>;

const MOST = 60;

/** As the address holds them: name=id,id;name=id. */
export const namesOf = (text: string): Names => {
  const made = new Map<string, string>();
  for (const one of text.split(';')) {
    const [name = '', ids = ''] = one.split('=');
    try {
      for (const id of ids.split(',')) if (name && id) made.set(id, decodeURIComponent(name).slice(0, MOST));
    } catch {
      // an address that was cut off
    }
  }
  return made;
};

export const formatNames = (names: Names): string => {
  const members = new Map<string, string[]>();
  for (const [id, name] of names) members.set(name, [...(members.get(name) ?? []), id]);
  return [...members].map(([name, ids]) => `${encodeURIComponent(name)}=${ids.join(',')}`).join(';');
};

/** One more name, or none for an empty one. */
export const rename = (names: Names, ids: readonly string[], name: string): Names => {
  const made = new Map(names);
  for (const id of ids) {
    made.delete(id);
    if (name.trim()) made.set(id, name.trim().slice(0, MOST));
  }
  return made;
};

export const GROUP = 'group ';

/** The graph with its names; ``together`` draws the nodes of one name as one box, at the place of the topmost. */
export const withNames = (graph: Graph, names: Names, together: boolean): Graph => {
  if (!names.size) return graph;
  const members = new Map<string, GraphNode[]>();
  for (const node of graph.nodes.values()) {
    const name = names.get(node.id);
    if (name !== undefined) members.set(name, [...(members.get(name) ?? []), node]);
  }
  const home = new Map<string, string>();
  const nodes = new Map(graph.nodes);
  for (const [name, list] of members) {
    const top = list.reduce((best, one) => (one.row > best.row ? one : best));
    if (!together || list.length < 2) {
      for (const one of list) nodes.set(one.id, { ...one, title: name, sub: [one.title, one.sub].filter(Boolean).join(' ') });
      continue;
    }
    const id = GROUP + name;
    for (const one of list) {
      nodes.delete(one.id);
      home.set(one.id, id);
    }
    nodes.set(id, { ...top, id, kind: 'group', reads: null, title: name, sub: plural(list.length, 'node'), attention: null, size: list.length });
  }
  const edges = new Map<string, GraphEdge>();
  for (const e of graph.edges) {
    const [source, target] = [home.get(e.source) ?? e.source, home.get(e.target) ?? e.target];
    if (source === target) continue;
    const id = `${source}|${target}|${e.line}|${e.unit}`;
    const known = edges.get(id);
    edges.set(id, known ? { ...known, weight: known.weight + e.weight, size: known.size + e.size, channels: [...new Set([...known.channels, ...e.channels])] } : { ...e, id, source, target });
  }
  return { nodes, edges: [...edges.values()] };
};

/** From the root to a node, always along the line that carries most. */
export const pathTo = (graph: Graph, id: string): GraphNode[] => {
  const path: GraphNode[] = [];
  for (let node = graph.nodes.get(id); node && !path.includes(node); ) {
    path.unshift(node);
    const above = graph.edges.filter((e) => e.source === path[0]?.id);
    const best = above.length ? above.reduce((a, e) => (Math.abs(e.weight) > Math.abs(a.weight) ? e : a)) : undefined;
    node = best && graph.nodes.get(best.target);
  }
  return path;
};
