// The one table: writers by channels, and what is merged so that rows and columns keep their sums.
import { nameText } from '../kit/names';
import { sum } from '../numbers';
import type { ExplanationDocument, Row, Side, VocabularyView } from './document';

export interface Column {
  /** The channels that this column stands for; those of the block have no number of their own. */
  channels: readonly (number | 'others')[];
  title: string;
  name: string | null;
  total: number;
  block: boolean;
  vocabulary: { query: VocabularyView; key: VocabularyView } | null;
  /** What the channel is called, with its test. */
  known: string;
}
export interface Line {
  row: Row;
  /** One value per column. */
  values: readonly number[];
}
export interface Matrix {
  columns: readonly Column[];
  helping: readonly Line[];
  hindering: readonly Line[];
  others: Line | null;
}

const COLUMNS = 10;

/** A name with its test as a line of a tooltip; empty where there is none. */
export const named = (data: Pick<ExplanationDocument, 'names'>, signal: string): string => {
  const name = data.names?.signals[signal];
  return name ? `\n${signal}: ${nameText(name)}` : '';
};

/** Channels by number, and those whose number would mean nothing with other texts as one. */
export const channelNames = (data: Pick<ExplanationDocument, 'numbered'>, channels: readonly number[]): string => {
  const known = channels.filter((channel) => data.numbered === null || data.numbered.includes(channel));
  const rest = channels.length - known.length;
  return [...known.map(String), ...(rest ? [rest === 1 && !known.length ? 'unnumbered' : `${rest} unnumbered`] : [])].join(', ');
};

export const columnsOf = (data: ExplanationDocument): Column[] => {
  const shown = data.what.filter((one) => one.stable && one.channel !== 'others').slice(0, COLUMNS);
  const rest = data.what.filter((one) => !shown.includes(one));
  const columns: Column[] = shown.map((one) => ({ channels: [one.channel], title: String(one.channel), name: one.name, total: one.log_odds, block: false, vocabulary: one.vocabulary, known: named(data, `${data.head} ch${one.channel} ${one.pole}`) }));
  if (rest.length) {
    const count = sum(rest.map((one) => one.count ?? 1));
    columns.push({ channels: rest.map((one) => one.channel), title: 'others', name: `${count} other channels as one block`, total: sum(rest.map((one) => one.log_odds)), block: true, vocabulary: null, known: '' });
  }
  return columns;
};

const lineOf = (row: Row, columns: readonly Column[]): Line => {
  const by = new Map(row.channels.map((one) => [one.channel, one.log_odds]));
  return { row, values: columns.map((column) => sum(column.channels.map((channel) => by.get(channel) ?? 0))) };
};

const merged = (lines: readonly Line[], columns: readonly Column[], side: Side): Line => {
  const row: Row = { side, writer: 'others', reads: null, log_odds: sum(lines.map((one) => one.row.log_odds)), count: sum(lines.map((one) => one.row.count)), cause: false, role: null, vocabulary: null, channels: [], through: [], neurons: [] };
  return { row, values: columns.map((_, i) => sum(lines.map((one) => one.values[i] ?? 0))) };
};

/** A side's strongest writers; the cause always, the rest as one row. */
export const matrixOf = (data: ExplanationDocument, side: Side, most: number): Matrix => {
  const columns = columnsOf(data);
  const lines = data.who.filter((row) => row.side === side).map((row) => lineOf(row, columns));
  const named = lines.filter((one) => one.row.writer !== 'others').sort((a, b) => Math.abs(b.row.log_odds) - Math.abs(a.row.log_odds));
  const shown = named.filter((one, i) => i < most || one.row.cause);
  const rest = lines.filter((one) => !shown.includes(one));
  return {
    columns,
    helping: shown.filter((one) => one.row.log_odds >= 0),
    hindering: shown.filter((one) => one.row.log_odds < 0),
    others: rest.length ? merged(rest, columns, side) : null,
  };
};
