// Two prompts side by side, or one before and after what the bench changes: the answer, every head, one head's row.
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { Figure } from '../kit/figure';
import { explained } from '../kit/explained';
import { Shown } from '../kit/tokens';
import { number, signed } from '../numbers';
import { isolated, readable } from '../text';
import { Alert } from '../app/alert';
import type { Shared, Trouble } from '../app/app';
import { troubleOf } from '../app/app';
import { useEffectOf } from '../app/bench';
import type { HeadsSeen, PromptRead } from '../app/wire';

const LISTED = 30;
const LONGEST = 600;

/** Positions of two lists of tokens side by side: equal ones beside each other, as many as there can be. */
export const aligned = (a: readonly string[], b: readonly string[]): [number | null, number | null][] => {
  const most = a.map(() => new Uint16Array(b.length + 1)).concat([new Uint16Array(b.length + 1)]);
  const at = (i: number, j: number): number => most[i]?.[j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) (most[i] as Uint16Array)[j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  const pairs: [number | null, number | null][] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) pairs.push([i++, j++]);
    else if (j >= b.length || (i < a.length && at(i + 1, j) >= at(i, j + 1))) pairs.push([i++, null]);
    else pairs.push([null, j++]);
  }
  // What was left out on one side and put in on the other is one change.
  const made: typeof pairs = [];
  for (const pair of pairs) {
    const last = made.at(-1);
    if (pair[0] === null && last && last[1] === null) last[1] = pair[1];
    else made.push([...pair]);
  }
  return made;
};

interface Side {
  prompt: PromptRead;
  heads: HeadsSeen;
  /** The row of the head in question, at the last token. */
  row: readonly number[] | null;
}

export const CompareScreen = (props: Shared) => {
  const { place, go, prompt } = props;
  const [other, setOther] = useState(place.other);
  const { sides, trouble, running } = useSides(props);
  if (!place.text.trim()) return <p>Type a prompt first.</p>;
  return (
    <section class="compare-screen">
      <h1>Compare</h1>
      <p class="lead">{isolated(readable(place.text))}</p>
      <form
        class="row-of-controls patch"
        onSubmit={(event) => {
          event.preventDefault();
          go({ other });
        }}
      >
        <label>
          with <input value={other} placeholder="another prompt" onInput={(event) => setOther(event.currentTarget.value)} />
        </label>
        <button type="submit" class="small">
          compare
        </button>
        <span class="stage" role="status">
          {running ? 'the model is reading …' : ''}
        </span>
      </form>
      <Alert trouble={trouble} />
      {sides ? <Both sides={sides} {...props} /> : null}
      {prompt && place.edits && place.head !== null && place.query !== null && place.key !== null ? <Edited {...props} prompt={prompt} cell={{ head: place.head, query: place.query, key: place.key }} /> : place.other ? null : <p class="soft">Give another prompt; or change something on the bench, and see here what it changes.</p>}
    </section>
  );
};

const useSides = ({ server, place, prompt }: Shared) => {
  const [sides, setSides] = useState<[Side, Side] | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const [running, setRunning] = useState(false);
  const { other, chat, head } = place;
  useEffect(() => {
    setTrouble(null);
    if (!prompt || !other.trim()) return setSides(null);
    let wanted = true;
    setRunning(true);
    const side = async (read: PromptRead): Promise<Side> => {
      const heads = await server.get<HeadsSeen>(`/api/prompts/${read.id}/heads`);
      if (head === null) return { prompt: read, heads, row: null };
      const { shape, data } = await server.bytes(`/api/prompts/${read.id}/pattern/${head}`);
      return { prompt: read, heads, row: lastRow(data, shape[1] ?? 2, read.tokens.length) };
    };
    const ask = async () => {
      const second = await server.post<PromptRead>('/api/prompts', { tab: server.tab, text: other, chat });
      const both: [Side, Side] = [await side(prompt), await side(second)];
      if (wanted) setSides(both);
    };
    ask()
      .catch((error) => wanted && setTrouble(troubleOf(error)))
      .finally(() => wanted && setRunning(false));
    return () => {
      wanted = false;
    };
  }, [server, prompt?.id, other, chat, head]);
  return { sides, trouble, running };
};

/** The last row of a pattern: attention in two bytes, or its root in one. */
const lastRow = (cells: Uint8Array, bytes: number, tokens: number): number[] => {
  const view = new DataView(cells.buffer, cells.byteOffset, cells.byteLength);
  const first = (tokens * (tokens - 1)) / 2;
  return Array.from({ length: tokens }, (_, key) => (bytes === 1 ? (view.getUint8(first + key) / 255) ** 2 : view.getUint16(2 * (first + key), true) / 65535));
};

type Line = readonly [unknown, number | null, number | null];
const Diff = ({ title, name, of, lines, onPick }: { title: string; name: string; /** What its numbers are called in the glossary. */ of: string; lines: readonly Line[]; onPick?: (line: Line) => void }) => (
  <Figure>
    <figcaption>
      <b>{title}</b>
    </figcaption>
    <table class="beforeafter diff">
      <thead>
        <tr>
          <th scope="col">{name}</th>
          {['this', 'the other', 'difference'].map((one, i) => (
            <th scope="col" class="n" {...explained(i < 2 ? of : one)}>
              {one}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {lines.map((line) => (
          <tr>
            <th scope="row">
              {onPick ? (
                <button type="button" class="small" onClick={() => onPick(line)}>
                  {String(line[0])}
                </button>
              ) : (
                (line[0] as ComponentChildren)
              )}
            </th>
            {[line[1], line[2]].map((v) => (
              <td class="n" {...explained(of || String(line[0]), { v }, of === '')}>
                {number(v)}
              </td>
            ))}
            <td class="n">{line[1] === null || line[2] === null ? '–' : signed(line[2] - line[1], 3)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  </Figure>
);

const Both = ({ sides: [a, b], place, go }: { sides: [Side, Side] } & Pick<Shared, 'place' | 'go'>) => {
  const pairs = useMemo(() => (Math.max(a.prompt.tokens.length, b.prompt.tokens.length) > LONGEST ? [] : aligned(a.prompt.tokens, b.prompt.tokens)), [a, b]);
  const chance = (side: Side, token: string): number | null => side.prompt.answer.find((one) => one.token === token)?.p ?? null;
  const tokens = [...new Set([...a.prompt.answer, ...b.prompt.answer].map((one) => one.token))];
  const [x, y] = [a.heads.statistics.brings, b.heads.statistics.brings];
  const heads = x.map((_, i) => i).sort((i, j) => Math.abs((y[j] ?? 0) - (x[j] ?? 0)) - Math.abs((y[i] ?? 0) - (x[i] ?? 0)));
  const name = (i: number): string => `L${Math.floor(i / a.heads.heads)}H${i % a.heads.heads}`;
  const token = (at: number | null, side: Side) => (at === null ? '–' : <Shown text={side.prompt.tokens[at] ?? '?'} most={16} />);
  return (
    <div class="two">
      <div>
        <Diff title="Next token: the five likeliest of each" name="token" of="probability" lines={tokens.map((one) => [<Shown text={one} most={20} />, chance(a, one), chance(b, one)])} />
        {place.head !== null && a.row && b.row ? (
          <Diff
            title={`What ${place.head} reads from the last token`}
            name="token"
            of="attention"
            lines={pairs.map(([i, j]) => [
              <>
                {token(i, a)}
                {i !== null && j !== null && a.prompt.tokens[i] === b.prompt.tokens[j] ? null : <> / {token(j, b)}</>}
              </>,
              i === null ? null : (a.row?.[i] ?? null),
              j === null ? null : (b.row?.[j] ?? null),
            ])}
          />
        ) : null}
      </div>
      <Diff title="What each head brings of its own prompt's answer (log-probability), the largest difference first" name="head" of="brings" lines={heads.slice(0, LISTED).map((i) => [name(i), x[i] ?? null, y[i] ?? null])} onPick={(line) => go({ head: String(line[0]), query: null, key: null, edits: '' }, 'replace')} />
    </div>
  );
};

/** Before and after what the bench changes. */
const Edited = ({ server, place, go, prompt, cell }: Parameters<typeof useEffectOf>[0]) => {
  const { seen, trouble, running } = useEffectOf({ server, place, go, prompt, cell });
  if (trouble)
    return (
      <p class="note" role="alert">
        {trouble.error}
      </p>
    );
  if (!seen) return running ? <p class="soft">running the changed model …</p> : null;
  const { before, after } = seen;
  return (
    <div class="two edited">
      <Diff title="Next token, as it is and changed" name="token" of="probability" lines={seen.top.map((one) => [<Shown text={one.token} most={20} />, one.before, one.after])} />
      <Diff
        title={`${cell.head} from ${cell.query} to ${cell.key}, and the answer`}
        name="number"
        of=""
        lines={[
          ['attention', before.attention, after.attention],
          ['probability', before.probability, after.probability],
          ['log-probability', before.log_probability, after.log_probability],
          ['lead', before.lead, after.lead],
        ]}
      />
    </div>
  );
};
