// What is wanted seldom, or last: a script of its own, which the app loads when the first of it is wanted.
import { Bench } from './bench';
import { CircuitScreen } from './circuit';
import { CompareScreen } from './compare';
import { RunsScreen } from './runs';

export const screens = { bench: Bench, circuit: CircuitScreen, compare: CompareScreen, runs: RunsScreen };
