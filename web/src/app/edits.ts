// What the bench changes: as the address holds it, and as the server takes it.
import type { Cell, Tick } from '../host';
import type { EditPlan } from './wire';

/** What each kind is made of, in the order of its letters: a side, a writer with the token it read, channels, a token, a
 * name, a cell, and whether all that is above sees it. */
const SLOTS = { rm: 'sw', sg: 'swc', ch: 'sc', ft: 'sn', sw: 'pn', ed: 'tswcg', si: 'w', pa: 'wn', cut: '' } as const;

export interface Edit extends Required<Tick> {
  target: Cell | null;
  global: boolean;
  /** How much of it: 1 is all, −1 as much once more. */
  dose: number;
}

export const edit = (one: Partial<Edit> & Pick<Edit, 'kind'>): Edit => ({ side: 'query', writer: '', reads: null, channels: [], name: '', target: null, global: false, dose: 1, ...one });

const at = (position: number | null): string => (position === null ? '' : `@${position}`);
const PUT: Record<string, (one: Edit) => string> = {
  s: (one) => one.side.charAt(0),
  w: (one) => one.writer + at(one.reads),
  c: (one) => one.channels.join('.'),
  p: (one) => String(one.reads),
  n: (one) => encodeURIComponent(one.name).replaceAll('*', '%2A'),
  t: ({ target }) => (target ? `${target.head}@${target.query}<-${target.key}` : ''),
  g: (one) => (one.global ? 'g' : ''),
};

const one = (text: string, pattern: RegExp): string[] | null => pattern.exec(text)?.slice(1) ?? null;
const TAKE: Record<string, (text: string) => Partial<Edit> | null> = {
  s: (text) => ({ side: text === 'k' ? 'key' : 'query' }),
  w: (text) => {
    const found = one(text, /^([A-Za-z]{1,12}\d{0,4}(?:H\d{1,4})?)(?:@(\d{1,6}))?$/);
    return found && { writer: found[0] as string, reads: found[1] === undefined ? null : Number(found[1]) };
  },
  c: (text) => (/^\d{1,4}(\.\d{1,4})*$/.test(text) ? { channels: text.split('.').map(Number) } : null),
  p: (text) => (/^\d{1,6}$/.test(text) ? { reads: Number(text) } : null),
  n: (text) => {
    try {
      return { name: decodeURIComponent(text) };
    } catch {
      return null;
    }
  },
  t: (text) => {
    const found = one(text, /^(L\d{1,4}H\d{1,4})@(\d{1,6})<-(\d{1,6})$/);
    return found && { target: { head: found[0] as string, query: Number(found[1]), key: Number(found[2]) } };
  },
  g: (text) => ({ global: text === 'g' }),
};

/** An edit whatever its dose. */
export const nameOf = (of: Edit): string => [of.kind, ...[...SLOTS[of.kind]].map((slot) => PUT[slot]?.(of))].join(':');
export const format = (edits: readonly Edit[]): string => edits.map((of) => nameOf(of) + (of.dose === 1 ? '' : `*${of.dose}`)).join(';');

const parsed = (text: string): Edit | null => {
  const [whole = '', dose = '1'] = one(text, /^(.*?)(?:\*(-?[01](?:\.\d{1,3})?))?$/) ?? [];
  const [kind = '', ...rest] = whole.split(':');
  if (!(kind in SLOTS)) return null;
  const slots = [...SLOTS[kind as Edit['kind']]];
  const parts = slots.map((slot, i) => TAKE[slot]?.(rest[i] ?? ''));
  return parts.includes(null) ? null : edit(Object.assign({ kind: kind as Edit['kind'], dose: Math.max(-1, Math.min(1, Number(dose))) }, ...parts));
};

export const parse = (text: string): Edit[] => text.split(';').map(parsed).filter((found): found is Edit => found !== null);

/** Edits that follow one another and are alike but for what they take; one after another they act as they are listed. */
const runsOf = (edits: readonly Edit[]): Edit[][] => {
  const made: Edit[][] = [];
  for (const one of edits) {
    const last = made.at(-1);
    if (last?.[0] && (['kind', 'side', 'dose'] as const).every((name) => last[0]?.[name] === one[name])) last.push(one);
    else made.push([one]);
  }
  return made;
};

/** As the server takes it; ``ids`` are the prompts that values are taken from. What is alike goes in one piece. */
export const planned = (edits: readonly Edit[], ids: ReadonlyMap<string, string>): EditPlan['edits'] => {
  const made: EditPlan['edits'][number][] = [];
  for (const same of runsOf(edits)) {
    const { kind, side, dose } = same[0] as Edit;
    const part = Math.max(0, dose);
    const signals = same.map(({ writer, reads, channels }) => ({ writer, reads, channels }));
    if (kind === 'rm') made.push({ kind: 'remove', side, writers: signals.map(({ writer, reads }) => ({ writer, reads })), dose });
    if (kind === 'sg') made.push({ kind: 'signals', side, signals, dose });
    if (kind === 'ch') made.push({ kind: 'channels', side, channels: same.flatMap((of) => of.channels), dose });
    for (const { name, reads, writer, target, channels, global } of same) {
      if (kind === 'ft') made.push({ kind: 'feature', side, feature: name, dose });
      if (kind === 'sw') made.push({ kind: 'swap', other: reads ?? 0, feature: name || null, dose: part });
      if (kind === 'ed' && target) made.push({ kind: 'edge', ...target, side, signal: { writer, reads, channels }, scope: global ? 'global' : 'local', dose });
      if (kind === 'cut') made.push({ kind: 'cut', dose: part });
      if (kind === 'si') made.push({ kind: 'silence', head: writer, position: reads, dose });
      const source = ids.get(name);
      if (kind === 'pa' && source && reads !== null) made.push({ kind: 'patch', head: writer, position: reads, source, dose: part });
    }
  }
  return made;
};
