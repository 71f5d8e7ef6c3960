// Runs whose features or names an explanation uses.
import type { Place } from './place';
import type { AppState, RunFolderEntry } from './wire';

export const fitting = (state: AppState | null, kinds: readonly string[]): RunFolderEntry[] => state?.runs.filter((one) => one.fits && kinds.includes(one.kind ?? '')) ?? [];

/** The run of names: the one that the address says, or else the first that fits. */
export const namesIn = (place: Place, state: AppState | null): number | null => (place.named === -1 ? null : (place.named ?? fitting(state, ['names'])[0]?.index ?? null));
