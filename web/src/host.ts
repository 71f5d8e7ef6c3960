// What the surroundings of a mounted part can do. A saved page can do nothing, so it has an empty host; an app or a
// notebook gives functions, and a part offers what its host can do.
export interface Cell {
  head: string;
  query: number;
  key: number;
}

export interface Host {
  /** Explain another cell. */
  explain?(cell: Cell): void;
}
