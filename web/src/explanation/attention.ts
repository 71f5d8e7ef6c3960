// The attention of the whole head, as the page carries it.
import type { GrowingDocument } from './document';

export type Attention = (query: number, key: number) => number;

/** What is known of the pattern: all of it on a page that carries it, else the explained cell alone. */
export const attentionOf = (data: GrowingDocument): Attention | null => {
  const { pattern } = data;
  if (!pattern) return null;
  const raw = typeof pattern.cells === 'string' ? Uint8Array.from(atob(pattern.cells), (c) => c.charCodeAt(0)) : pattern.cells;
  const wide = pattern.bytes === 2;
  const cells = wide ? new Uint16Array(raw.buffer, raw.byteOffset, raw.byteLength / 2) : raw;
  return (query, key) => {
    if (key > query) return 0;
    if (query === data.query && key === data.key && data.attention !== undefined) return data.attention;
    const v = cells[(query * (query + 1)) / 2 + key] ?? 0;
    return wide ? v / 65535 : (v / 255) ** 2;
  };
};
