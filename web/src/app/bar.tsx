// The bar above every screen: where one is, and what with.
import { isolated, readable } from '../text';
import type { Go } from './app';
import type { Place, Screen } from './place';
import type { AppState } from './wire';

export const TITLES: Record<Screen, string> = { prompt: 'Prompt', heads: 'Heads', cell: 'Cell', circuit: 'Circuit', compare: 'Compare', runs: 'Runs' };
/** Screens that need no prompt. */
const FREE: readonly Screen[] = ['prompt', 'runs'];

export const Bar = ({ place, state, go }: { place: Place; state: AppState | null; go: Go }) => (
  <header class="app-bar">
    <strong class="brand">headwise</strong>
    <nav aria-label="Screens">
      {(Object.keys(TITLES) as Screen[]).map((screen) => (
        <button type="button" aria-current={place.screen === screen ? 'page' : undefined} disabled={!FREE.includes(screen) && !place.text.trim()} onClick={() => go({ screen, run: null, page: '', table: '' })}>
          {TITLES[screen]}
        </button>
      ))}
    </nav>
    {state ? (
      <details class="about-model">
        <summary>{isolated(readable(state.model))}</summary>
        <div class="panel">
          <p>
            {state.layers} layers of {state.heads} heads, on {state.device}. Checked against the model's own forward pass:
          </p>
          <table>
            <thead>
              <tr>
                <th scope="col">check</th>
                <th scope="col">error</th>
                <th scope="col">allowed</th>
              </tr>
            </thead>
            <tbody>
              {state.self_check.map((one) => (
                <tr>
                  <td>{one.name}</td>
                  <td class="n">{one.error.toExponential(1)}</td>
                  <td class="n">{one.allowed.toExponential(0)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <p class="soft">headwise {state.version}</p>
        </div>
      </details>
    ) : (
      <span class="soft">loading …</span>
    )}
  </header>
);
