// Where one is: the address holds everything that changes a number, and what is looked at.
export type Screen = 'prompt' | 'heads' | 'cell' | 'circuit' | 'compare' | 'runs';

export interface Place {
  screen: Screen;
  /** The model that the address was made with, and the beginning of its weights' hash. */
  model: string;
  weights: string;
  text: string;
  chat: boolean;
  head: string | null;
  query: number | null;
  key: number | null;
  answer: string | null;
  wrong: string | null;
  /** What attention must fall below without its cause; null is as usual. */
  tau: number | null;
  draws: number;
  seed: number;
  /** How heads are ordered, and which are shown. */
  sort: string;
  role: string;
  /** The token whose row every head shows, or who reads it. */
  row: number | null;
  to: boolean;
  /** What the bench takes away, in words that the address can hold, and how much of it. */
  edits: string;
  dose: number;
  /** Run folders whose features and names are used, by number; of names null is whichever fits, −1 none. */
  features: readonly number[];
  named: number | null;
  /** The prompt that this one is compared with. */
  other: string;
  /** Positions that stand for one another in both, where the found ones are not meant: 9=10,13=15. */
  align: string;
  /** A walk through the circuit: where it begins (nothing: the answer), what was opened, what is looked at, and the
   * names that boxes were given. */
  root: string;
  opened: string;
  node: string;
  names: string;
  /** A saved page: the number of its run folder, and its name. */
  run: number | null;
  page: string;
  /** Of a run of circuits, which one. */
  circuit: number;
  /** A table of it, the rows that are shown, and their order: a column, with − the largest first. */
  table: string;
  words: string;
  order: string;
  start: number;
}

export const DRAWS = 999;
/** Prompts longer than this are kept by the app, and named by their digest. */
export const LONGEST = 1500;
/** Digests of long prompts, and the other way round. */
const digests = new Map<string, string>();
const texts = new Map<string, string>();
export const remember = (text: string, digest: string) => {
  digests.set(text, digest);
  texts.set(digest, text);
};
/** Long prompts of a place that have no digest yet, and digests of an address whose prompt is not known yet. */
export const unnamed = ({ text, other }: Place): string[] => [text, other].filter((one) => one.length > LONGEST && !digests.has(one));
export const unread = (url: string): string[] => {
  const given = new URLSearchParams(url.split('?')[1] ?? '');
  return ['x', 'x2'].flatMap((name) => given.get(name) ?? []).filter((one) => /^[0-9a-f]{64}$/.test(one) && !texts.has(one));
};

const PATHS: Record<Screen, string> = { prompt: '/', heads: '/heads', cell: '/cell', circuit: '/circuit', compare: '/compare', runs: '/runs' };

export const NOWHERE: Place = { screen: 'prompt', model: '', weights: '', text: '', chat: false, head: null, query: null, key: null, answer: null, wrong: null, tau: null, draws: DRAWS, seed: 0, sort: 'layer', role: '', row: null, to: false, edits: '', dose: 1, features: [], named: null, other: '', align: '', root: '', opened: '', node: '', names: '', run: null, page: '', circuit: 0, table: '', words: '', order: '', start: 0 };

/** As much of the hash of a model's weights as an address holds. */
export const weightsIn = (hash: string): string => hash.slice(0, 12);

const whole = (text: string | null): number | null => (text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null);

const share = (text: string | null): number | null => (text !== null && Number(text) > 0 && Number(text) <= 1 ? Number(text) : null);

export const placeOf = (url: string): Place => {
  const [path = '/', query = ''] = url.split('?');
  const given = new URLSearchParams(query);
  const head = given.get('h');
  return {
    screen: (Object.keys(PATHS) as Screen[]).find((one) => PATHS[one] === path) ?? 'prompt',
    model: given.get('m') ?? '',
    weights: given.get('wt') ?? '',
    text: given.get('p') ?? texts.get(given.get('x') ?? '') ?? '',
    chat: given.get('chat') === '1',
    head: head !== null && /^L\d{1,4}H\d{1,4}$/.test(head) ? head : null,
    query: whole(given.get('q')),
    key: whole(given.get('k')),
    answer: given.get('a'),
    wrong: given.get('w'),
    tau: share(given.get('tau')),
    draws: Math.min(9999, Math.max(1, whole(given.get('draws')) ?? DRAWS)),
    seed: whole(given.get('seed')) ?? 0,
    sort: given.get('s') ?? 'layer',
    role: given.get('role') ?? '',
    row: whole(given.get('r')),
    to: given.get('to') === '1',
    edits: given.get('e') ?? '',
    dose: Math.min(1, Math.max(0, Number(given.get('dose') ?? 1) || 0)),
    features: (given.get('f') ?? '').split(',').flatMap((one) => whole(one) ?? []),
    named: given.get('nm') === 'none' ? -1 : whole(given.get('nm')),
    other: given.get('p2') ?? texts.get(given.get('x2') ?? '') ?? '',
    align: given.get('al') ?? '',
    root: given.get('root') ?? '',
    opened: given.get('o') ?? '',
    node: given.get('n') ?? '',
    names: given.get('g') ?? '',
    run: whole(given.get('run')),
    page: given.get('page') ?? '',
    circuit: whole(given.get('c')) ?? 0,
    table: given.get('table') ?? '',
    words: given.get('rows') ?? '',
    order: given.get('by') ?? '',
    start: whole(given.get('from')) ?? 0,
  };
};

/** Pairs of positions as the server takes them; what is no number is refused there. */
export const alignPairs = (text: string): number[][] => (text.trim() ? text.split(',').map((pair) => pair.split('=').map((one) => (one.trim() ? Number(one) : Number.NaN))) : []);

/** Boxes of a circuit that were opened, in the order of the clicks. */
export const listOf = (text: string): string[] => text.split(',').filter(Boolean);

/** Where a row of a table leads: to its cell, or to all heads of its prompt. */
export const placeFrom = (given: Readonly<Record<string, string>>): Partial<Place> => {
  const { text, head, query, key, answer, wrong } = placeOf(`/?${new URLSearchParams(given)}`);
  const prompt = text ? { text, chat: false, answer, wrong } : {};
  return { screen: head === null ? 'heads' : 'cell', ...prompt, head, query, key, edits: '', row: null, to: false, root: '', opened: '', node: '', names: '' };
};

export const urlOf = (place: Place): string => {
  const made = new URLSearchParams();
  const put = (name: string, value: string | number | null, unless: string | number | null = null) => {
    if (value !== null && value !== '' && value !== unless) made.set(name, String(value));
  };
  const long = (name: string, brief: string, text: string) => put(digests.get(text) ? brief : name, digests.get(text) || text);
  long('p', 'x', place.text);
  put('chat', place.chat ? '1' : null);
  put('h', place.head);
  put('q', place.query);
  put('k', place.key);
  put('a', place.answer);
  put('w', place.wrong);
  put('tau', place.tau);
  put('draws', place.draws, DRAWS);
  put('seed', place.seed, 0);
  put('s', place.sort, 'layer');
  put('role', place.role);
  put('r', place.row);
  put('to', place.to ? '1' : null);
  put('e', place.edits);
  put('dose', place.dose, 1);
  put('f', place.features.join(','));
  put('nm', place.named === -1 ? 'none' : place.named);
  long('p2', 'x2', place.other);
  put('al', place.align);
  put('root', place.root);
  put('o', place.opened);
  put('n', place.node);
  put('g', place.names);
  put('run', place.run);
  put('page', place.page);
  put('c', place.circuit, 0);
  put('table', place.table);
  put('rows', place.words);
  put('by', place.order);
  put('from', place.start, 0);
  put('m', place.model);
  put('wt', place.weights);
  const query = made.toString();
  return PATHS[place.screen] + (query ? `?${query}` : '');
};
