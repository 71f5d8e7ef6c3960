// The screens that are opened seldom: a script of their own, which the app loads when the first of them is wanted.
import { CircuitScreen } from './circuit';
import { CompareScreen } from './compare';
import { RunsScreen } from './runs';

export const screens = { circuit: CircuitScreen, compare: CompareScreen, runs: RunsScreen };
