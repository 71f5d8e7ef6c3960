// The keyboard: a key for everything that is done often, and the list of them.
import { useEffect, useRef } from 'preact/hooks';
import type { Server } from '../host';
import type { Go } from './app';
import type { Place } from './place';
import type { AppState } from './wire';

const isTyped = (target: EventTarget | null): boolean => target instanceof HTMLElement && target.matches('input:not([type=checkbox]), textarea, select');

/** From the cell that is shown to the circuit that feeds it. */
export const up = (place: Place, go: Go) => {
  if (place.screen !== 'cell' || place.head === null || place.query === null || place.key === null) return go({ screen: 'circuit' });
  const id = `${place.head}@${place.query}<-${place.key}`;
  go({ screen: 'circuit', root: id, opened: id, node: id });
};

interface Keyed {
  go: Go;
  place: Place;
  state: AppState | null;
  server: Server;
  list: () => void;
}

export const useKeys = ({ go, place, state, list }: Keyed) => {
  useEffect(() => {
    const turn = (by: number) => {
      const found = /^L(\d+)H(\d+)$/.exec(place.head ?? '');
      if (!found || !state || place.screen !== 'cell') return;
      const count = state.layers * state.heads;
      const index = Number(found[1]) * state.heads + Number(found[2]);
      const next = (index + by + count) % count;
      go({ head: `L${Math.floor(next / state.heads)}H${next % state.heads}`, edits: '' });
    };
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyped(event.target)) return;
      const wide = state?.heads ?? 1;
      const acts: Record<string, () => void> = {
        '/': () => go({ screen: 'prompt' }),
        g: () => place.text.trim() && go({ screen: 'heads' }),
        c: () => place.text.trim() && go({ screen: 'cell' }),
        u: () => up(place, go),
        r: () => place.screen === 'heads' && go({ to: !place.to }, 'replace'),
        '[': () => turn(-1),
        ']': () => turn(1),
        '{': () => turn(-wide),
        '}': () => turn(wide),
        b: () => history.back(),
        e: () => document.activeElement?.closest('tr')?.querySelector<HTMLInputElement>('input.tick')?.click(),
        x: () => {
          const bench = document.querySelector<HTMLDetailsElement>('details.bench');
          if (!bench) return;
          bench.open = true;
          bench.querySelector<HTMLButtonElement>('.run-edits')?.click();
          bench.querySelector('summary')?.focus();
        },
        z: () => document.querySelector<HTMLButtonElement>('button.put-back')?.click(),
        '?': list,
      };
      const act = acts[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, [go, place, state, list]);
};

export const KeyList = ({ keys, onClose }: { keys: AppState['keys']; onClose: () => void }) => {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => box.current?.showModal(), []);
  return (
    <dialog class="key-list" ref={box} onClose={onClose} aria-label="Keys">
      <h2>Keys</h2>
      <dl>
        {keys.map(([key, says]) => (
          <div>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{says}</dd>
          </div>
        ))}
      </dl>
      <button type="button" class="small" onClick={() => box.current?.close()}>
        close
      </button>
    </dialog>
  );
};
