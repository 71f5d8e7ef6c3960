// Made by tools/make_wire.py from headwise/app/wire.py and wire_runs.py: change these, and run it.

/** What the app is working with. */
export interface AppState {
  version: string;
  model: string;
  weight_hash: string;
  chosen: string;
  models: readonly string[];
  layers: number;
  heads: number;
  context: number | null;
  has_chat: boolean;
  device: string;
  threads: number;
  self_check: readonly SelfCheck[];
  runs: readonly RunFolderEntry[];
  glossary: PageGlossary;
  examples: readonly (readonly string[])[];
  keys: readonly (readonly string[])[];
}

/** A job that was begun; what becomes of it is told in the stream of events. */
export interface Begun {
  job: string;
  ahead: number;
}

/** The cell that is meant, as far as it was named. */
export interface CellMeant {
  head: string | null;
  query: number | null;
  key: number | null;
}

/** A cell as a person writes it: positions are numbers or the text of their tokens. */
export interface CellNamed {
  prompt: string;
  head?: string | null;
  query?: string | null;
  key?: string | null;
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
  address?: string;
  features?: readonly number[];
  names?: number | null;
  tau?: number | null;
  draws?: number;
  seed?: number;
}

/** What a test says: its null, how often that was drawn, p, q over its group, and whether the claim holds. */
export interface ClaimSeen {
  null: string;
  draws: number;
  p: number;
  q: number;
  group: string;
  supported: boolean;
}

/** One kind of control: the cell's attention, and the change of the answer. */
export interface ControlSeen {
  name: string;
  text: string;
  draws: number;
  attention: DrawnSpread;
  attention_p: number | null;
  tried: number;
  change: DrawnSpread;
  p: number;
}

/** Take the cell's own attention, and share it out among the other tokens. */
export interface CutCell {
  kind: 'cut';
  dose?: number;
}

/** Two prompts whose difference is to be explained; what is left out is found. */
export interface DifferenceRequest {
  tab: string;
  prompt: string;
  other: string;
  head?: string | null;
  query?: number | null;
  key?: number | null;
  answer?: string | null;
  wrong?: string | null;
  align?: readonly (readonly number[])[];
  draws?: number;
  seed?: number;
}

/** Mean of some draws, and where 90 % of them lie. */
export interface DrawnSpread {
  mean: number;
  low: number;
  high: number;
}

/** What to change in the running model, and the cell and answer that are watched. */
export interface EditPlan {
  tab: string;
  prompt: string;
  head: string;
  query: number;
  key: number;
  answer?: string | null;
  wrong?: string | null;
  edits: readonly (RemoveWriters | RemoveSignals | RemoveChannels | RemoveFeature | SwapKeys | RemoveEdge | SilenceHead | CutCell | PatchHead)[];
  features?: readonly number[];
  dose?: number;
  draws?: number;
  seed?: number;
}

/** Before, predicted, observed, and as much of something else. */
export interface EditSeen {
  before: OutcomeSeen;
  predicted: number | null;
  after: OutcomeSeen;
  change: number;
  measured_by: 'log_probability' | 'lead';
  controls: readonly ControlSeen[];
  claim: ClaimSeen | null;
  top: readonly TokenChange[];
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

/** What is offered to whoever comes. */
export interface JobList {
  jobs: readonly LeftJob[];
}

/** A prompt that is kept on this machine, and its SHA-256, by which an address names it. */
export interface KeptText {
  digest: string;
  text: string;
}

/** An explanation that a tab asked for which was closed since. */
export interface LeftJob {
  job: string;
  about: string;
  address: string;
  done: boolean;
  error: string | null;
}

/** A prompt that is too long for an address. */
export interface LongText {
  text: string;
}

/** A cell that ``explain`` would choose. */
export interface MarkedCell {
  head: string;
  query: number;
  key: number;
}

/** Another model to work with, by its name in the app's list. */
export interface ModelRequest {
  tab: string;
  job: string;
  name: string;
}

/** A writer as a table names it, in some channels of the head that reads it. */
export interface NamedSignal {
  writer: string;
  reads?: number | null;
  channels: readonly number[];
}

/** A writer as a table names it. */
export interface NamedWriter {
  writer: string;
  reads?: number | null;
}

/** What a number is and how to read it, its formula, and where it comes from. */
export interface NumberMeaning {
  says: string;
  formula: string;
  source: string;
}

/** What the model does in one state. */
export interface OutcomeSeen {
  attention: number;
  probability: number;
  lead: number;
  log_probability: number;
}

/** What the numbers of a page mean, by the names that it gives them, and how to read an explanation. */
export interface PageGlossary {
  numbers: Record<string, NumberMeaning>;
  terms: readonly TermMeaning[];
  captions: Record<string, string>;
}

/** Let a head write at a position what it writes there in another prompt of as many tokens. */
export interface PatchHead {
  kind: 'patch';
  head: string;
  position: number;
  source: string;
  dose?: number;
}

/** What is on a screen, to be had as a command and as Python. */
export interface PlaceAsked {
  screen: 'prompt' | 'heads' | 'cell' | 'circuit' | 'compare' | 'runs';
  text: string;
  chat?: boolean;
  head?: string | null;
  query?: number | null;
  key?: number | null;
  answer?: string | null;
  wrong?: string | null;
  features?: readonly number[];
  names?: number | null;
  edits?: readonly (RemoveWriters | RemoveSignals | RemoveChannels | RemoveFeature | SwapKeys | RemoveEdge | SilenceHead | CutCell | PatchHead)[];
  dose?: number;
  other?: string;
  align?: readonly (readonly number[])[];
  root?: string | null;
  opened?: readonly string[];
  run?: number | null;
  tau?: number | null;
  draws?: number;
  seed?: number;
}

/** The same without the app. */
export interface PlaceSaid {
  command: string;
  python: string;
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
  choices?: readonly string[];
}

/** Take whole channels, whoever wrote into them, from the query or the keys of the cell. */
export interface RemoveChannels {
  kind: 'channels';
  side: 'query' | 'key';
  channels: readonly number[];
  dose?: number;
}

/** Take an edge of a circuit away: a signal into another cell, for that head alone or for all above it. */
export interface RemoveEdge {
  kind: 'edge';
  head: string;
  query: number;
  key: number;
  side: 'query' | 'key';
  signal: NamedSignal;
  scope?: 'local' | 'global';
  dose?: number;
}

/** Take a named feature from the query or the keys of the cell. */
export interface RemoveFeature {
  kind: 'feature';
  side: 'query' | 'key';
  feature: string;
  dose?: number;
}

/** Take what writers wrote into some channels from the query or the keys of the cell. */
export interface RemoveSignals {
  kind: 'signals';
  side: 'query' | 'key';
  signals: readonly NamedSignal[];
  dose?: number;
}

/** Take what whole writers wrote from the query or the keys of the cell. */
export interface RemoveWriters {
  kind: 'remove';
  side: 'query' | 'key';
  writers: readonly NamedWriter[];
  dose?: number;
}

/** A run folder: one that was named on the command line, or that of a study. */
export interface RunFolderEntry {
  index: number;
  name: string;
  kind: string | null;
  pages: readonly string[];
  fits: boolean;
}

/** One comparison with the model's own pass. */
export interface SelfCheck {
  name: string;
  error: number;
  allowed: number;
}

/** Let a head write nothing at a position, or at all. */
export interface SilenceHead {
  kind: 'silence';
  head: string;
  position?: number | null;
  dose?: number;
}

/** Exchange the key of the cell with that of another token, all of it or inside a named feature. */
export interface SwapKeys {
  kind: 'swap';
  other: number;
  feature?: string | null;
  dose?: number;
}

/** A word of an explanation. */
export interface TermMeaning {
  term: string;
  formula: string;
  words: string;
}

/** A next token and its probability. */
export interface TokenChance {
  token: string;
  p: number;
}

/** A next token before and after. */
export interface TokenChange {
  token: string;
  before: number;
  after: number;
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

/** A circuit as far as it was opened, from the answer or from a cell. */
export interface WalkRequest {
  tab: string;
  job?: string | null;
  prompt: string;
  answer?: string | null;
  wrong?: string | null;
  root?: string | null;
  opened?: readonly string[];
}

/** A study to begin. */
export interface AnyStudy {
  study: TraceStudy | CircuitsStudy | FeaturesStudy | SinksStudy | FamiliesStudy | NamesStudy;
}

/** The circuits of many prompts of a task. */
export interface CircuitsStudy {
  kind: 'circuits';
  task: string;
  prompts?: number | null;
  seed?: number;
}

/** A column of a table. */
export interface ColumnSeen {
  name: string;
  number: boolean;
  meaning: string;
}

/** What the circuits of runs share; the folders are those that the app was given or has made. */
export interface FamiliesStudy {
  kind: 'families';
  runs: readonly string[];
  seed?: number;
}

/** The heads and features of a task. */
export interface FeaturesStudy {
  kind: 'features';
  task: string;
  prompts?: number | null;
  seed?: number;
}

/** What heads respond to, in words. */
export interface NamesStudy {
  kind: 'name';
  source: string;
  texts?: number;
}

/** A row, and the place in the app that it speaks of. */
export interface RowSeen {
  cells: readonly (string | number | number | boolean | null)[];
  place: Record<string, string>;
}

/** All run folders: those of the command line first, then those of studies. */
export interface RunList {
  runs: readonly RunSeen[];
  answer_tasks: readonly string[];
  labelled_tasks: readonly string[];
  folder: string;
}

/** A run folder with its tables, and the study that makes it, if it was begun here. */
export interface RunSeen {
  entry: RunFolderEntry;
  path: string;
  finished: boolean;
  model: string | null;
  tables: readonly TableEntry[];
  study: StudyEntry | null;
}

/** Where heads rest, and what makes them. */
export interface SinksStudy {
  kind: 'sinks';
  prompts?: number | null;
  seed?: number;
}

/** What becomes of a study. */
export interface StudyEntry {
  id: string;
  kind: string;
  about: string;
  trace: TraceStudy | null;
  state: 'running' | 'finished' | 'stopped' | 'failed';
  stage: string | null;
  done: number | null;
  total: number | null;
  left: string | null;
  said: string | null;
}

/** A study that was left is to go on; the address names it. */
export interface StudyToContinue {

}

/** A table of a run folder. */
export interface TableEntry {
  name: string;
  rows: number;
}

/** A piece of a table. */
export interface TableSeen {
  columns: readonly ColumnSeen[];
  rows: readonly RowSeen[];
  total: number;
  matching: number;
  start: number;
}

/** The whole circuit of one prompt. */
export interface TraceStudy {
  kind: 'trace';
  text: string;
  chat?: boolean;
  answer?: string | null;
  wrong?: string | null;
}
