// The cell that is asked about, to be typed: positions as numbers, or as the text of their tokens.
import { useEffect, useState } from 'preact/hooks';
import { Alert } from './alert';
import type { Shared, Trouble } from './app';
import { troubleOf } from './app';
import type { CellMeant } from './wire';

export const CELL = ['head', 'query', 'key'] as const;
type Typed = Record<(typeof CELL)[number], string>;
const SAYS: Typed = { head: 'head', query: 'from', key: 'to' };

type AskedProps = Pick<Shared, 'server' | 'place' | 'prompt' | 'go'> & { /** What was said of the cell of the address. */ trouble: Trouble | null };

export const Asked = ({ server, place: { head, query, key }, prompt, go, trouble }: AskedProps) => {
  const shown = (): Typed => ({ head: head ?? '', query: String(query ?? ''), key: String(key ?? '') });
  const [typed, setTyped] = useState(shown);
  const [own, setOwn] = useState<Trouble | null>(null);
  useEffect(() => {
    setTyped(shown());
    setOwn(null);
  }, [head, query, key]);
  const ask = (next: Typed) => {
    setTyped(next);
    const [named, from, to] = CELL.map((one) => next[one] || null);
    if (prompt) server.post<CellMeant>('/api/cell', { prompt: prompt.id, head: named, query: from, key: to }).then((cell) => go({ ...cell, edits: '' }), (error) => setOwn(troubleOf(error)));
  };
  const said = own ?? trouble;
  return (
    <>
      <form
        class="asked"
        onSubmit={(event) => {
          event.preventDefault();
          ask(typed);
        }}
      >
        {CELL.map((one) => (
          <label>
            {SAYS[one]}{' '}
            <input
              name={one}
              value={typed[one]}
              size={one === 'head' ? 7 : 5}
              placeholder={one === 'head' ? 'any' : 'token'}
              aria-invalid={said?.where === one}
              aria-describedby={said?.where === one ? 'asked-trouble' : undefined}
              onInput={(event) => setTyped({ ...typed, [one]: event.currentTarget.value })}
            />
          </label>
        ))}
        <button type="submit" class="small" disabled={!prompt}>
          ask
        </button>
      </form>
      <Alert trouble={said} of={CELL} id="asked-trouble" onChoose={(choice, where) => ask({ ...typed, [where]: choice })} />
    </>
  );
};
