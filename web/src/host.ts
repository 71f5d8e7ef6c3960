// What the surroundings of a mounted part can do. A saved page can do nothing, so it has an empty host; an app or a
// notebook gives functions, and a part offers what its host can do.
import type { screens } from './screens';

export interface Cell {
  head: string;
  query: number;
  key: number;
}

/** What the bench can change: a writer (``rm``), a signal, a channel or a feature of one side of the explained cell; a
 * swap of its key, an edge of a circuit, a head that is silent or patched, the cell cut. */
export interface Tick {
  kind: 'rm' | 'sg' | 'ch' | 'ft' | 'sw' | 'ed' | 'si' | 'pa' | 'cut';
  side?: 'query' | 'key';
  writer?: string;
  reads?: number | null;
  channels?: readonly number[];
  name?: string;
}

export interface Host {
  /** Explain another cell. */
  explain?(cell: Cell): void;
  /** Choose parts that are to be taken away. */
  bench?: {
    ticked(one: Tick): boolean;
    toggle(one: Tick): void;
  };
}

/** What of the app has a script of its own, loaded when the first of it is wanted. */
export type Later = typeof screens;

export interface Told {
  kind: string;
  data: unknown;
}

/** Everything that leaves the page goes through this: the bundle itself asks nobody. */
export interface Server {
  /** Names this tab, so that its events find it. */
  readonly tab: string;
  get<T>(path: string): Promise<T>;
  post<T>(path: string, body: unknown): Promise<T>;
  remove<T>(path: string): Promise<T>;
  cancel(job: string): void;
  /** Bytes, with the shape that they have. */
  bytes(path: string): Promise<{ shape: readonly number[]; data: Uint8Array }>;
  /** Events of jobs; ``state`` hears whether the server is there. */
  listen(hear: (told: Told) => void, state?: (there: boolean) => void): () => void;
  address: {
    read(): string;
    go(url: string, how: 'push' | 'replace'): void;
    listen(hear: () => void): () => void;
    whole(url: string): string;
  };
  screens(): Promise<Later>;
  copy(text: string): Promise<void>;
  /** Keep a file that the server makes. */
  save(path: string, name: string): Promise<void>;
  /** Keep a page that was made here. */
  keep(text: string, name: string): void;
}

/** What the server refused, in its own words. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly hint: string | null,
    readonly where: string | null,
    readonly status: number,
    /** What could be given there instead. */
    readonly choices: readonly string[] = [],
  ) {
    super(message);
  }
}
