// The document of an explanation (docs: The explanation's document), with what only a page adds.
import type { Glossary } from '../kit/explained';
import type { KnownNames } from '../kit/names';

export type Side = 'query' | 'key';
export const SIDES: readonly Side[] = ['query', 'key'];

export interface Writer {
  writer: string;
  /** The token a head read. */
  reads: number | null;
}
/** Tokens at both ends of a direction, by the weights alone: a hint and not a name. */
export interface TokenEnds {
  most: readonly { token: string; score: number }[];
  least: readonly { token: string; score: number }[];
}
export interface VocabularyView {
  embedding: TokenEnds;
  unembedding: TokenEnds;
}
export interface ChannelPart {
  channel: number | 'others';
  log_odds: number;
}
export interface What extends ChannelPart {
  stable: boolean;
  pole: string | null;
  name: string | null;
  vocabulary: { query: VocabularyView; key: VocabularyView } | null;
  count?: number;
}
export interface Through extends Writer {
  log_odds: number;
  effect: number | null;
  /** What the head does on random tokens, where that is known. */
  role: string | null;
}
export interface Neuron {
  index: number | string;
  log_odds: number;
}
export interface Row extends Writer {
  side: Side;
  log_odds: number;
  count: number;
  cause: boolean;
  role: string | null;
  vocabulary: VocabularyView | null;
  channels: readonly ChannelPart[];
  through: readonly Through[];
  neurons: readonly Neuron[];
}
export interface CauseSide {
  writers: readonly Writer[];
  diffuse: boolean;
  after: number | null;
  signals: readonly (Writer & { channels: readonly number[]; drop: number })[];
  signals_after: number | null;
}
export interface Outcome {
  attention: number;
  probability: number;
  lead: number;
  log_probability: number;
}
export interface Proof {
  side: Side | null;
  before: Outcome;
  after: Outcome | null;
  predicted: number | null;
  error: number | null;
  next: { writers: readonly Writer[]; after: number; outcome: Outcome } | null;
}
export interface Spread {
  mean: number;
  low: number;
  high: number;
  /** How many draws fall in each of equal bins from 0 to 1. */
  histogram?: readonly number[];
}
export interface Control {
  name: string;
  text: string;
  draws: number;
  attention: Spread;
  p: number;
  answer: (Spread & { draws: number; p: number }) | null;
}
export interface Word {
  said: boolean | null;
  value: number | null;
  p: number | null;
  /** The test behind a word that rests on one; absent in pages of before. */
  claim?: { null: string; draws: number; p: number; q: number; group: string; supported: boolean } | null;
}
/** The cause taken out in another prompt, where ``reads`` and positions are that prompt's (``missing``: this one's). */
export interface Transfer {
  prompt: string | null;
  tokens: readonly string[];
  query: number;
  key: number;
  writers: readonly Writer[];
  missing: readonly Writer[];
  before: Outcome;
  after: Outcome | null;
  predicted: number | null;
  controls: readonly Control[];
  holds: Word;
}
export interface Balance {
  helps: number;
  hinders: number;
}
export interface Features {
  /** ``value`` is in log-odds. */
  parts: readonly { name: string; rank: number | null; value: number; logit: number }[];
  unexplained: number | null;
  unexplained_share: number | null;
  writers: readonly {
    name: string;
    log_odds: number;
    writers: readonly { name: string; kind: string; layer: number; source?: number; side: Side; position: number; log_odds: number }[];
    rest: Partial<Record<Side, number>>;
  }[];
  tests: readonly { name: string; kind: string; predicted: number; observed: Outcome; controls: readonly number[]; percentile: number }[];
}
/** The visible half of the head's pattern, row by row: attention in two bytes, or its root in one. */
export interface WholePattern {
  bytes: 1 | 2;
  /** In base 64 on a saved page. */
  cells: string | Uint8Array;
}
/** What a page holds of the pattern of a long prompt, in base 64: roots of attention in two bytes, of the picture in one. */
export interface LongPattern {
  tokens: number;
  query: number;
  key: number;
  /** The row of the explained query, and the column of the explained key from its first reader on. */
  row: string;
  column: string;
  /** How many cells of each row follow one another in keys and cells, strongest first. */
  counts: string;
  keys: string;
  cells: string;
  /** All cells of so much attention are held, and so many of each row. */
  least: number;
  strongest: number;
  /** The lower half of a picture of all cells, a pixel for each block: the largest of it. */
  block: number;
  picture: string;
}

export interface ExplanationDocument {
  schema: number;
  model: string;
  prompt: string | null;
  tokens: readonly string[];
  head: string;
  role: string | null;
  query: number;
  key: number;
  attention: number;
  logit: number;
  answer: { text: string; wrong: string; probability: number; lead: number; predicted: string; measured_by: 'log_probability' | 'lead' };
  chosen_because: string;
  runners_up: readonly { head: string; query: number; key: number; score: number }[];
  notices: readonly string[];
  basis: { kind: string; frame: string; hash: string };
  log_odds: { total: number; baseline: number; keys: number; error: number; query: Balance; key: Balance; channels: Balance };
  relative: { logit: number; channels_needed: number; sparsity: number };
  /** Channels of this head that go by number; null: all of them. */
  numbered: readonly number[] | null;
  place: { content: number; place: number; interaction: number; level: number };
  what: readonly What[];
  who: readonly Row[];
  cause: { headline: Side | null; threshold: number; query: CauseSide; key: CauseSide };
  consequence: {
    raised: readonly { token: string; logit: number }[];
    lowered: readonly { token: string; logit: number }[];
    direct: { answer: number; lead: number } | null;
    path: Outcome | null;
    /** Whole answers, where one has several tokens: their summed log-probabilities. */
    summed?: readonly { text: string; before: number; path: number | null; after: number | null }[];
  };
  proof: Proof;
  controls: readonly Control[];
  /** The cause in finer parts, single channels of writers, beside controls of its own. */
  signals: { side: Side; after: number; controls: readonly Control[]; specific: Word } | null;
  verdict: { specific: Word; redundant: Word; matters: Word };
  transfer: readonly Transfer[];
  rivals: readonly { key: number; attention: number; gap: number; channels: readonly { channel: number; value: number }[] }[];
  features: Features | null;
  /** What of this was named by a run of names; null: none was given. */
  names?: KnownNames | null;
  sentence: string;
  seconds: number;
  pattern?: WholePattern | LongPattern;
  glossary?: Glossary;
  /** Tokens as the sentence quotes them, longest first. */
  quoted?: readonly string[];
}

/** An explanation of which some parts are not known yet: the question always is. */
export type GrowingDocument = Partial<ExplanationDocument> & Pick<ExplanationDocument, 'tokens' | 'head' | 'query' | 'key' | 'answer' | 'model' | 'chosen_because' | 'runners_up' | 'notices' | 'basis'>;
export const isWhole = (data: GrowingDocument): data is ExplanationDocument => data.sentence !== undefined;
