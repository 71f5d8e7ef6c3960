// Where the nodes of a graph are drawn: tokens along x and layers upwards, or, where nodes of several tokens are one,
// layers upwards alone, or tokens alone.
import type { Graph, GraphEdge, GraphNode, Grouping, Line } from './graph';
import { ANSWER_ROW, rowName } from './graph';

export interface Placed {
  node: GraphNode;
  x: number;
  y: number;
  wide: number;
  high: number;
}
export interface Column {
  at: number;
  x: number;
  wide: number;
  /** Tokens are left out before this one. */
  gap: boolean;
}
export interface Layout {
  placed: Map<string, Placed>;
  columns: Column[];
  rows: { name: string; y: number }[];
  width: number;
  height: number;
  /** Below the nodes, where the tokens are written. */
  floor: number;
}

const HIGH = 34;
const LOW = 22;
const SPACE = 10;
const LEFT = 84;
const ARC = 44;
const SWING = 150;
const ADJACENT = 28;  // between the boxes of two neighbouring rows
const TOP = 30;  // the tokens are written above as well as below

// A drawing has no way to measure text before it is there; these widths fit the page's own font.
const letters = (text: string): number => 7.2 * [...text.replace(/[\u2068\u2069]/g, '')].length;
const wideOf = (n: GraphNode): number => Math.max(34, 16 + Math.max(letters(n.title), 0.88 * letters(n.sub)));
const highOf = (n: GraphNode): number => (n.sub ? HIGH : LOW);

const order = ['embedding', 'offset', 'bias', 'head', 'mlp', 'group', 'answer'];

const columnsOf = (cells: Map<string, GraphNode[]>, used: number[], tokens: readonly string[], label: (at: number) => string): Column[] => {
  let x = LEFT;
  return used.map((at, i) => {
    const gap = i > 0 && used[i - 1] !== at - 1;
    if (gap) x += 24;
    const inside = Math.max(0, ...[...cells].filter(([key]) => key.endsWith(`:${at}`)).map(([, list]) => list.reduce((a, n) => a + wideOf(n) + SPACE, SPACE)));
    const wide = Math.max(52, letters(label(at)) * 1.1 + 16, inside + (inside ? ARC : 0), tokens.length ? 0 : 52);
    const made = { at, x, wide, gap };
    x += wide + 4;
    return made;
  });
};

const grid = (graph: Graph, tokens: readonly string[], label: (at: number) => string): Layout => {
  const nodes = [...graph.nodes.values()];
  const rows = [...new Set(nodes.map((n) => n.row))].sort((a, b) => a - b);
  const cells = new Map<string, GraphNode[]>();
  for (const n of nodes) cells.set(`${n.row}:${n.at}`, [...(cells.get(`${n.row}:${n.at}`) ?? []), n]);
  for (const list of cells.values()) list.sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind) || a.title.localeCompare(b.title, 'en', { numeric: true }) || (a.reads ?? 0) - (b.reads ?? 0));
  const used = [...new Set(nodes.flatMap((n) => [n.at ?? 0, n.reads ?? n.at ?? 0]))].sort((a, b) => a - b);
  const columns = columnsOf(cells, used, tokens, label);
  const lines = stacked(rows, nodes);
  const placed = new Map<string, Placed>();
  for (const column of columns)
    rows.forEach((row, i) => {
      const list = cells.get(`${row}:${column.at}`) ?? [];
      // In the middle of the column, beside the lane for lines that swing past.
      let x = column.x + Math.max(SPACE, (column.wide - ARC - list.reduce((a, n) => a + wideOf(n) + SPACE, -SPACE)) / 2);
      for (const node of list) {
        const wide = wideOf(node);
        placed.set(node.id, { node, x: x + wide / 2, y: lines.middles[i] as number, wide, high: highOf(node) });
        x += wide + SPACE;
      }
    });
  const last = columns.at(-1);
  return { placed, columns, rows: rows.map((row, i) => ({ name: rowName(row), y: lines.middles[i] as number })), width: (last ? last.x + last.wide : LEFT) + 16, height: lines.floor + 46, floor: lines.floor };
};

/** Rows from the top down; those without a second line are lower. */
const stacked = (rows: number[], nodes: GraphNode[]): { middles: number[]; floor: number } => {
  let y = TOP;
  const middles: number[] = [];
  for (let i = rows.length - 1; i >= 0; i--) {
    const tall = Math.max(...nodes.filter((n) => n.row === rows[i]).map(highOf)) + ((rows[i] as number) % 2 ? 12 : 20);
    middles[i] = y + tall / 2;
    y += tall;
  }
  return { middles, floor: y + 4 };
};

/** No tokens: each row in the order of what its nodes lead to, which keeps lines short. */
const layered = (graph: Graph, named: boolean): Layout => {
  const nodes = [...graph.nodes.values()];
  const rows = [...new Set(nodes.map((n) => n.row))].sort((a, b) => a - b);
  const lines = stacked(rows, nodes);
  const placed = new Map<string, Placed>();
  const out = new Map<string, GraphEdge[]>();
  for (const e of graph.edges) out.set(e.source, [...(out.get(e.source) ?? []), e]);
  const wideOfRow = (list: GraphNode[]) => list.reduce((a, n) => a + wideOf(n) + 2 * SPACE, 0);
  const widest = Math.max(2 * SWING + 160, ...rows.map((row) => wideOfRow(nodes.filter((n) => n.row === row))));
  for (let i = rows.length - 1; i >= 0; i--) {
    const list = nodes.filter((n) => n.row === rows[i]);
    const aim = (n: GraphNode): number => {
      const above = (out.get(n.id) ?? []).map((e) => placed.get(e.target)?.x).filter((x): x is number => x !== undefined);
      return above.length ? above.reduce((a, b) => a + b, 0) / above.length : LEFT + widest / 2;
    };
    const aims = new Map(list.map((n) => [n.id, aim(n)]));
    list.sort((a, b) => (aims.get(a.id) as number) - (aims.get(b.id) as number) || a.title.localeCompare(b.title, 'en', { numeric: true }));
    let x = LEFT + (widest - wideOfRow(list)) / 2;
    for (const node of list) {
      const wide = wideOf(node);
      placed.set(node.id, { node, x: x + SPACE + wide / 2, y: lines.middles[i] as number, wide, high: highOf(node) });
      x += wide + 2 * SPACE;
    }
  }
  return { placed, columns: [], rows: named ? rows.map((row, i) => ({ name: rowName(row), y: lines.middles[i] as number })) : [], width: LEFT + widest + 16, height: lines.floor + 8, floor: lines.floor };
};

/** Tokens along one line, arcs above them. */
const arcs = (graph: Graph, tokens: readonly string[], label: (at: number) => string): Layout => {
  const nodes = [...graph.nodes.values()];
  const used = [...new Set(nodes.map((n) => n.at ?? 0))].sort((a, b) => a - b);
  const cells = new Map<string, GraphNode[]>(used.map((at) => [`0:${at}`, nodes.filter((n) => n.kind !== 'answer' && n.at === at)]));
  const columns = columnsOf(cells, used, tokens, label);
  const middle = (c: Column | undefined) => (c ? c.x + c.wide / 2 : LEFT);
  const rise = 70 + 22 * columns.length;
  const floor = Math.min(460, rise) + 60;
  const placed = new Map<string, Placed>();
  for (const node of nodes) {
    const column = columns.find((c) => c.at === node.at);
    placed.set(node.id, { node, x: middle(column), y: node.row === ANSWER_ROW ? TOP + 14 : floor - 30, wide: wideOf(node), high: highOf(node) });
  }
  const last = columns.at(-1);
  return { placed, columns, rows: [], width: (last ? last.x + last.wide : LEFT) + 16, height: floor + 46, floor };
};

export const layout = (graph: Graph, by: Grouping, tokens: readonly string[], label: (at: number) => string): Layout =>
  by === 'none' ? grid(graph, tokens, label) : by === 'token' ? arcs(graph, tokens, label) : layered(graph, by === 'head');

/** The boxes of one column, or of none, between the rows of two. */
const between = (from: Placed, to: Placed, all: Iterable<Placed>): Placed[] => [...all].filter((one) => one.y < from.y && one.y > to.y && one.node.at === from.node.at);

/** The course of an edge. Past the boxes between its ends it swings out to a side. */
export const course = (from: Placed, to: Placed, plan: Layout, by: Grouping, line: Line): string => {
  if (by === 'token' && to.node.kind !== 'answer') {
    const high = Math.min(from.y - 20, 30 + Math.abs(from.x - to.x) * 0.45);
    const [a, b] = [from.y - from.high / 2, to.y - to.high / 2];
    return `M${from.x},${a} C${from.x},${a - high} ${to.x},${b - high} ${to.x},${b}`;
  }
  const [y1, y2] = [from.y - from.high / 2, to.y + to.high / 2];
  const rise = y1 - y2;
  if (Math.abs(from.x - to.x) < (from.wide + to.wide) / 2 && rise > ADJACENT) {
    // Without columns there is room on both sides: what was written for the key goes on the left.
    const right = by !== 'none' && line === 'key' ? -1 : 1;
    const out = Math.min(by === 'none' ? ARC - 6 : SWING, 12 + rise / (by === 'none' ? 9 : 4));
    const [a, b] = [from.x + (right * from.wide) / 2, to.x + (right * to.wide) / 2];
    const passed = by === 'none' ? between(from, to, plan.placed.values()).map((one) => one.x + one.wide / 2) : [];
    const far = right * Math.max(right * a, right * b, ...passed) + right * out;
    // A curve comes three quarters of the way to the points that bend it.
    const bend = (4 * far - (a + b) / 2) / 3;
    return `M${a},${from.y} C${bend},${from.y - 8} ${bend},${to.y + 16} ${b},${to.y + 4}`;
  }
  // From another token: out at the side and in at the side, past the boxes of its own column.
  if (by === 'none' && from.node.at !== to.node.at) {
    const right = from.x < to.x ? 1 : -1;
    const [a, b] = [from.x + (right * from.wide) / 2, to.x - (right * to.wide) / 2];
    const reach = Math.max(24, Math.min(150, Math.abs(b - a) * 0.6));
    return `M${a},${from.y} C${a + right * reach},${from.y} ${b - right * reach},${to.y + 5} ${b},${to.y + 5}`;
  }
  const bend = Math.max(4, Math.min(90, Math.abs(rise) * 0.5));
  return `M${from.x},${y1} C${from.x},${y1 - bend} ${to.x},${y2 + bend} ${to.x},${y2}`;
};
