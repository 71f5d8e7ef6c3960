// Made by tools/make_wire.py from headwise/app/wire.py: change that, and run it.

/** What the app is working with. */
export interface AppState {
  version: string;
  model: string;
  weight_hash: string;
  layers: number;
  heads: number;
  context: number | null;
  has_chat: boolean;
  device: string;
  threads: number;
  self_check: readonly SelfCheck[];
  runs: readonly RunFolderEntry[];
}

/** A job that was begun; what becomes of it is told in the stream of events. */
export interface Begun {
  job: string;
  ahead: number;
}

/** A cell to be explained; what is left out is found. */
export interface CellRequest {
  tab: string;
  job: string;
  prompt: string;
  head?: string | null;
  query?: number | null;
  key?: number | null;
  answer?: string | null;
  wrong?: string | null;
  features?: readonly number[];
  tau?: number | null;
  draws?: number;
  seed?: number;
}

/** One number per head of this prompt, and of the model's habits on random tokens once they are measured. */
export interface HeadStatistics {
  highest: readonly number[];
  entropy: readonly number[];
  resting: readonly number[];
  brings: readonly number[];
  roles: readonly (string | null)[] | null;
  habits: Record<string, readonly number[]>;
}

/** All heads of a prompt. */
export interface HeadsSeen {
  layers: number;
  heads: number;
  side: number;
  statistics: HeadStatistics;
  sinks: readonly number[];
  marked: readonly MarkedCell[];
}

/** A cell that ``explain`` would choose. */
export interface MarkedCell {
  head: string;
  query: number;
  key: number;
}

/** A prompt that was read. */
export interface PromptRead {
  id: string;
  tokens: readonly string[];
  ids: readonly number[];
  answer: readonly TokenChance[];
  context_left: number | null;
  basis: 'singular' | 'balanced' | 'rotated';
}

/** A prompt to be read: its text or its token ids. */
export interface PromptRequest {
  tab: string;
  text?: string | null;
  token_ids?: readonly number[] | null;
  chat?: boolean;
  basis?: 'singular' | 'balanced' | 'rotated';
}

/** Every error: one line, what to do about it, and the field that caused it, where these are known. */
export interface Refusal {
  error: string;
  hint?: string | null;
  where?: string | null;
}

/** A run folder that was named on the command line. */
export interface RunFolderEntry {
  index: number;
  name: string;
  kind: string | null;
  pages: readonly string[];
}

/** One comparison with the model's own pass. */
export interface SelfCheck {
  name: string;
  error: number;
  allowed: number;
}

/** A next token and its probability. */
export interface TokenChance {
  token: string;
  p: number;
}

/** The tokens of a text. */
export interface TokenList {
  tokens: readonly string[];
}

/** A prompt while it is typed: only its tokens are wanted. */
export interface TypedText {
  text: string;
  chat?: boolean;
}
