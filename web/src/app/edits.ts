// What the bench changes: as the address holds it, as the server takes it, and in words.
import type { Tickable } from '../host';
import type { EditPlan } from './wire';

export type Edit =
  | { kind: 'remove'; side: 'query' | 'key'; writer: string; reads: number | null }
  | { kind: 'silence'; head: string; position: number | null }
  | { kind: 'cut' }
  | { kind: 'patch'; head: string; position: number; text: string };

const at = (position: number | null): string => (position === null ? '' : `@${position}`);

export const format = (edits: readonly Edit[]): string =>
  edits
    .map((one) => {
      if (one.kind === 'remove') return `rm:${one.side === 'query' ? 'q' : 'k'}:${one.writer}${at(one.reads)}`;
      if (one.kind === 'silence') return `si:${one.head}${at(one.position)}`;
      if (one.kind === 'cut') return 'cut';
      return `pa:${one.head}${at(one.position)}:${encodeURIComponent(one.text)}`;
    })
    .join(';');

const HEAD = /^L\d{1,4}H\d{1,4}$/;

const parsed = (text: string): Edit | null => {
  if (text === 'cut') return { kind: 'cut' };
  const [kind, ...rest] = text.split(':');
  const [name = '', place] = (kind === 'rm' ? (rest[1] ?? '') : (rest[0] ?? '')).split('@');
  const position = place !== undefined && /^\d{1,6}$/.test(place) ? Number(place) : null;
  if (kind === 'rm' && /^[A-Za-z]{1,12}\d{0,4}(H\d{1,4})?$/.test(name)) return { kind: 'remove', side: rest[0] === 'k' ? 'key' : 'query', writer: name, reads: position };
  if (kind === 'si' && HEAD.test(name)) return { kind: 'silence', head: name, position };
  if (kind === 'pa' && HEAD.test(name) && position !== null && rest[1]) {
    try {
      return { kind: 'patch', head: name, position, text: decodeURIComponent(rest[1]) };
    } catch {
      return null;
    }
  }
  return null;
};

export const parse = (text: string): Edit[] => text.split(';').map(parsed).filter((one): one is Edit => one !== null);

export const same = (one: Edit, other: Tickable): boolean => one.kind === 'remove' && one.side === other.side && one.writer === other.writer && one.reads === other.reads;

/** As the server takes it: writers of one side in one piece; ``ids`` are the prompts that values are taken from. */
export const planned = (edits: readonly Edit[], ids: ReadonlyMap<string, string>): EditPlan['edits'] => {
  const made: EditPlan['edits'][number][] = [];
  for (const side of ['query', 'key'] as const) {
    const writers = edits.flatMap((one) => (one.kind === 'remove' && one.side === side ? [{ writer: one.writer, reads: one.reads }] : []));
    if (writers.length) made.push({ kind: 'remove', side, writers });
  }
  for (const one of edits) {
    if (one.kind === 'cut') made.push({ kind: 'cut' });
    if (one.kind === 'silence') made.push({ kind: 'silence', head: one.head, position: one.position });
    const source = one.kind === 'patch' ? ids.get(one.text) : undefined;
    if (one.kind === 'patch' && source) made.push({ kind: 'patch', head: one.head, position: one.position, source });
  }
  return made;
};
