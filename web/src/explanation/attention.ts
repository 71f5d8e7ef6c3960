// The attention of the whole head, as the page carries it.
import type { ExplanationDocument } from './document';

export type Attention = (query: number, key: number) => number;

/** What is known of the pattern: all of it on a page that carries it, else the explained cell alone. */
export const attentionOf = (data: ExplanationDocument): Attention | null => {
  const { pattern } = data;
  if (!pattern) return null;
  const raw = Uint8Array.from(atob(pattern.cells), (c) => c.charCodeAt(0));
  const wide = pattern.bytes === 2;
  const cells = wide ? new Uint16Array(raw.buffer) : raw;
  return (query, key) => {
    if (key > query) return 0;
    if (query === data.query && key === data.key) return data.attention;
    const v = cells[(query * (query + 1)) / 2 + key] ?? 0;
    return wide ? v / 65535 : (v / 255) ** 2;
  };
};
