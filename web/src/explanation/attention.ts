// The attention of the head, as the page carries it: all of it, or in a long prompt what a reader needs.
import type { GrowingDocument, LongPattern, WholePattern } from './document';

export interface Attention {
  /** Attention of a row to a key; of a cell that is not held, the most that it can be. */
  at: (query: number, key: number) => number;
  /** Whether the number is the cell's own. */
  holds: (query: number, key: number) => boolean;
  /** The keys of a row that are held, in any order. */
  keys: (query: number) => Iterable<number>;
  /** The largest attention of a block of cells, where the page has a picture instead of all cells. */
  picture: { block: number; at: (row: number, column: number) => number } | null;
  /** What is held of other rows than the explained one. */
  says: string;
}

const bytesOf = (cells: string | Uint8Array): Uint8Array => (typeof cells === 'string' ? Uint8Array.from(atob(cells), (c) => c.charCodeAt(0)) : cells);
const shorts = (text: string): Uint16Array => new Uint16Array(bytesOf(text).buffer);
const triangle = (row: number): number => (row * (row + 1)) / 2;
const square = (root: number | undefined, most: number): number => ((root ?? 0) / most) ** 2;

/** What is known of the pattern: null where the explained cell alone is. */
export const attentionOf = (data: GrowingDocument): Attention | null => {
  const { pattern } = data;
  if (!pattern) return null;
  const held = 'picture' in pattern ? longAttention(pattern) : wholeAttention(pattern);
  // The explained cell is known to more places than cells have.
  const at = (query: number, key: number) => (query === data.query && key === data.key && data.attention !== undefined ? data.attention : held.at(query, key));
  return { ...held, at };
};

const wholeAttention = (pattern: WholePattern): Attention => {
  const raw = bytesOf(pattern.cells);
  const wide = pattern.bytes === 2;
  const cells = wide ? new Uint16Array(raw.buffer, raw.byteOffset, raw.byteLength / 2) : raw;
  const at = (query: number, key: number) => {
    if (key > query) return 0;
    const v = cells[triangle(query) + key] ?? 0;
    return wide ? v / 65535 : (v / 255) ** 2;
  };
  return { at, holds: () => true, keys: (query) => Array(query + 1).keys(), picture: null, says: '' };
};

const longAttention = (pattern: LongPattern): Attention => {
  const [row, column, cells] = [shorts(pattern.row), shorts(pattern.column), shorts(pattern.cells)];
  const [counts, keys, picture] = [bytesOf(pattern.counts), new Uint32Array(bytesOf(pattern.keys).buffer), bytesOf(pattern.picture)];
  const starts = new Uint32Array(pattern.tokens + 1);
  counts.forEach((count, i) => (starts[i + 1] = (starts[i] ?? 0) + count));
  const span = (query: number): [number, number] => [starts[query] ?? 0, starts[query + 1] ?? 0];
  /** The cell's root, where it is held. */
  const root = (query: number, key: number): number | undefined => {
    if (key > query) return 0;
    if (query === pattern.query) return row[key];
    if (key === pattern.key) return column[query - key];
    const [low, high] = span(query);
    const found = keys.subarray(low, high).indexOf(key);
    return found < 0 ? undefined : cells[low + found];
  };
  /** Cells of a row are held from the strongest on, and all that reach the least: none of the others is above either. */
  const most = (query: number): number => Math.min(pattern.least, square(cells[span(query)[1] - 1], 65535));
  return {
    at: (query, key) => {
      const found = root(query, key);
      return found === undefined ? most(query) : square(found, 65535);
    },
    holds: (query, key) => root(query, key) !== undefined,
    keys: (query) => (query === pattern.query ? Array(query + 1).keys() : new Set([...keys.subarray(...span(query)), ...(query < pattern.key ? [] : [pattern.key])])),
    picture: { block: pattern.block, at: (r, c) => (c > r ? 0 : square(picture[triangle(r) + c], 255)) },
    says: `the explained row and column, of every other row the ${pattern.strongest} strongest cells, and all cells of ${pattern.least} or more`,
  };
};
