// All heads at a glance, ordered and filtered by what can be said of them; a token above shows its row in all of them.
import { useEffect, useId, useMemo, useRef, useState } from 'preact/hooks';
import { Figure } from '../kit/figure';
import { Caption } from '../kit/caption';
import { coloursOf, useRepaint } from '../kit/canvas';
import { Here } from '../kit/here';
import { Numbers } from '../kit/numbers';
import { useTip } from '../kit/tip';
import { Shown } from '../kit/tokens';
import { number, signed } from '../numbers';
import { pieces, plural, visible } from '../text';
import { Answers } from './answers';
import type { Shared } from './app';
import type { Grid } from './thumbs';
import { gridOf, over, paint, spotOf } from './thumbs';
import type { HeadsSeen } from './wire';

const ORDERS: [string, string][] = [
  ['layer', 'layer'],
  ['brings', 'part of the answer it brings'],
  ['highest', 'strongest attention'],
  ['focus', 'most focused rows'],
  ['resting', 'attention on sinks'],
];
const RESTS = 0.6;
const LISTED = 40;
const LIKE = 'like:';

interface Seen extends HeadsSeen {
  thumbs: Uint8Array;
}

const nameOf = (seen: HeadsSeen, head: number): string => `L${Math.floor(head / seen.heads)}H${head % seen.heads}`;

/** Of every head, how much its row is like another's: the cosine of the roots of their attention, 1 where they are equal. */
const overlaps = (row: Uint8Array, tokens: number, with_: number): number[] => {
  const of = (head: number, at: number) => row[head * tokens + at] ?? 0;
  const dot = (a: number, b: number) => {
    let total = 0;
    for (let at = 0; at < tokens; at++) total += of(a, at) * of(b, at);
    return total;
  };
  return Array.from({ length: row.length / tokens }, (_, head) => dot(head, with_) / (Math.sqrt(dot(head, head) * dot(with_, with_)) || 1));
};

const valueOf = (seen: HeadsSeen, order: string, head: number): number => {
  const { statistics: of } = seen;
  if (order === 'focus') return 1 - (of.entropy[head] ?? 0);
  const own: Record<string, readonly number[]> = { brings: of.brings, highest: of.highest, resting: of.resting };
  return (own[order] ?? of.habits[order])?.[head] ?? 0;
};

export const HeadsScreen = ({ server, place, prompt, go, read }: Shared) => {
  const [seen, setSeen] = useState<Seen | null>(null);
  const [wait, setWait] = useState(0);
  const id = prompt?.id ?? null;
  useEffect(() => {
    if (id === null) return;
    let wanted = true;
    const ask = async () => {
      const [heads, thumbs] = await Promise.all([server.get<HeadsSeen>(`/api/prompts/${id}/heads`), server.bytes(`/api/prompts/${id}/thumbs`)]);
      if (wanted) setSeen({ ...heads, thumbs: thumbs.data });
      // The heads' habits are measured when the model has time.
      if (wanted && heads.statistics.roles === null) setTimeout(() => wanted && setWait((n) => n + 1), 1500);
    };
    ask().catch(() => wanted && void read());
    return () => {
      wanted = false;
    };
  }, [server, id, wait]);
  if (!place.text.trim()) return <p>Type a prompt first.</p>;
  if (!prompt || !seen || seen.thumbs.length === 0)
    return (
      <p class="soft" role="status">
        The model is reading …
      </p>
    );
  return <Heads key={id} server={server} seen={seen} place={place} prompt={prompt} go={go} />;
};

const Heads = ({ server, seen, place, prompt, go }: Pick<Shared, 'server' | 'place' | 'go'> & { seen: Seen; prompt: NonNullable<Shared['prompt']> }) => {
  const [pointed, setPointed] = useState<number | null>(null);
  const [rests, setRests] = useState(true);
  const [turned, setTurned] = useState(false);
  const [told, setTold] = useState(false);
  const above = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // Shift turns what the pointer shows around, for as long as it is held.
    const turn = (event: KeyboardEvent) => event.key === 'Shift' && setTurned(event.type === 'keydown' && above.current?.matches(':hover') === true);
    addEventListener('keydown', turn);
    addEventListener('keyup', turn);
    return () => {
      removeEventListener('keydown', turn);
      removeEventListener('keyup', turn);
    };
  }, []);
  const shownRow = pointed ?? place.row;
  const to = place.to !== turned;
  const row = useRow(server, prompt.id, shownRow !== null && shownRow < prompt.tokens.length ? shownRow : null, to);
  const roles = seen.statistics.roles;
  const known = useMemo(() => [...new Set((roles ?? []).filter((one): one is string => one !== null))].sort(), [roles]);
  const names = useMemo(() => Array.from({ length: seen.layers * seen.heads }, (_, head) => nameOf(seen, head)), [seen]);
  // Heads whose row is like that of one: only where a row was chosen.
  const like = place.sort.startsWith(LIKE) ? names.indexOf(place.sort.slice(LIKE.length)) : -1;
  const chosen = useRow(server, prompt.id, like < 0 || place.row === null || place.row >= prompt.tokens.length ? null : place.row, place.to);
  const alike = useMemo(() => (chosen ? overlaps(chosen, prompt.tokens.length, like) : null), [chosen, like]);
  const shown = useMemo(() => {
    const every = Array.from({ length: seen.layers * seen.heads }, (_, head) => head);
    const left = every.filter((head) => (!place.role || roles?.[head] === place.role) && (rests || (seen.statistics.resting[head] ?? 0) < RESTS));
    if (alike) return left.sort((a, b) => (alike[b] ?? 0) - (alike[a] ?? 0));
    return place.sort === 'layer' ? left : left.sort((a, b) => valueOf(seen, place.sort, b) - valueOf(seen, place.sort, a));
  }, [seen, roles, place.sort, place.role, rests, alike]);
  const resting = seen.statistics.resting.filter((one) => one >= RESTS).length;
  const open = (head: number) => {
    const marked = seen.marked.find((one) => one.head === nameOf(seen, head));
    const { row: at } = place;
    const cell = at === null ? { query: marked?.query ?? null, key: marked?.key ?? null } : place.to ? { query: null, key: at } : { query: at, key: null };
    go({ screen: 'cell', head: nameOf(seen, head), ...cell, edits: '' });
  };
  return (
    <section class="heads-screen">
      <h1>Every head</h1>
      <Answers prompt={prompt} place={place} go={go} />
      <p class="soft">
        <Caption of="heads" />
      </p>
      <div class="tokens heads-tokens" role="group" ref={above} aria-label="Tokens: point at one to see its row in every head, or its column" onPointerMove={(event) => setTurned(event.shiftKey)} onPointerLeave={() => setPointed(null)}>
        {prompt.tokens.map((token, i) => (
          <button
            type="button"
            class={seen.sinks.includes(i) ? 'sink' : ''}
            aria-pressed={place.row === i}
            aria-label={`${visible(token)}, position ${i}${seen.sinks.includes(i) ? ', a sink: heads rest here' : ''}`}
            onPointerEnter={() => setPointed(i)}
            onFocus={() => setPointed(i)}
            onBlur={() => setPointed(null)}
            onClick={() => go({ row: place.row === i ? null : i }, 'replace')}
          >
            <bdi>{pieces(token).map((part) => (part.space ? <span class="ws">{part.text}</span> : part.text))}</bdi>
          </button>
        ))}
      </div>
      <div class="row-of-controls">
        <label>
          ordered by{' '}
          <select value={place.sort} onChange={(event) => go({ sort: event.currentTarget.value }, 'replace')}>
            {[...ORDERS, ...Object.keys(seen.statistics.habits).map((one): [string, string] => [one, `${one} on random tokens`]), ...(like < 0 ? [] : [[place.sort, `${place.to ? 'column' : 'row'} like that of ${names[like]}`] as [string, string]])].map(([value, says]) => (
              <option value={value}>{says}</option>
            ))}
          </select>
        </label>
        <label>
          role{' '}
          <select value={place.role} onChange={(event) => go({ role: event.currentTarget.value }, 'replace')} disabled={roles === null}>
            <option value="">any</option>
            {known.map((one) => (
              <option value={one}>{one}</option>
            ))}
          </select>
        </label>
        <label>
          a token shows{' '}
          <select class="way" value={place.to ? 'to' : ''} onChange={(event) => go({ to: event.currentTarget.value === 'to' }, 'replace')}>
            <option value="">what each head reads from it</option>
            <option value="to">who reads it in each head</option>
          </select>
        </label>
        {place.row === null ? null : (
          <label>
            {place.to ? 'columns' : 'rows'} like that of{' '}
            <select class="like" value={names[like] ?? ''} onChange={(event) => go({ sort: event.currentTarget.value ? LIKE + event.currentTarget.value : 'layer' }, 'replace')}>
              <option value="">no head</option>
              {names.map((one) => (
                <option value={one}>{one}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          <input type="checkbox" checked={!rests} onChange={(event) => setRests(!event.currentTarget.checked)} /> hide {plural(resting, 'head')} that rest on sinks
        </label>
        <button type="button" class="small what-is" aria-expanded={told} aria-controls="sinks" onClick={() => setTold(!told)}>
          what is a sink?
        </button>
      </div>
      <div id="sinks" class="note" hidden={!told}>
        <p>
          <Caption of="sinks" />
        </p>
        <p>
          {seen.sinks.length ? 'Here: ' : 'Here there is none.'}
          {seen.sinks.map((i) => (
            <>
              <Shown text={prompt.tokens[i] ?? ''} /> <span class="at">{i}</span>{' '}
            </>
          ))}
        </p>
      </div>
      <p class="soft shown-now" role="status">
        {shown.length} of {seen.layers * seen.heads} heads; {shownRow === null ? 'whole patterns' : to ? `the column of position ${shownRow}: how much each head reads it, from each token, the root of attention as height` : `the row of position ${shownRow}: what each head reads there, the root of attention as height`}
        {alike ? `; first those whose ${place.to ? 'column' : 'row'} is most like that of ${names[like]}` : ''}
      </p>
      <Pictures seen={seen} shown={shown} row={row} tokens={prompt.tokens.length} alike={alike} byLayer={place.sort === 'layer' && shown.length === seen.layers * seen.heads} onOpen={open} />
      <Numbers
        title={`Numbers of the first ${Math.min(LISTED, shown.length)} heads`}
        columns={['head', 'role', ...(alike ? ['overlap'] : []), 'brings', 'strongest', 'entropy', 'on sinks']}
        rows={shown.slice(0, LISTED).map((head) => [names[head] ?? '', roles?.[head] ?? '', ...(alike ? [alike[head] ?? 0] : []), ...[seen.statistics.brings, seen.statistics.highest, seen.statistics.entropy, seen.statistics.resting].map((one) => one[head] ?? 0)])}
      />
    </section>
  );
};

/** One row of every head, or one column: asked for when a token is pointed at. */
const useRow = (server: Shared['server'], id: string, at: number | null, to: boolean): Uint8Array | null => {
  const kept = useRef(new Map<string, Uint8Array>());
  const [got, setGot] = useState<Uint8Array | null>(null);
  useEffect(() => {
    if (at === null) return setGot(null);
    const path = `/api/prompts/${id}/${to ? 'column' : 'row'}/${at}`;
    const known = kept.current.get(path);
    if (known) return setGot(known);
    let wanted = true;
    server.bytes(path).then(
      ({ data }) => {
        kept.current.set(path, data);
        if (wanted) setGot(data);
      },
      () => undefined,
    );
    return () => {
      wanted = false;
    };
  }, [server, id, at, to]);
  return at === null ? null : got;
};

interface PicturesProps {
  seen: Seen;
  shown: readonly number[];
  row: Uint8Array | null;
  tokens: number;
  alike: readonly number[] | null;
  byLayer: boolean;
  onOpen: (head: number) => void;
}
const Pictures = ({ seen, shown, row, tokens, alike, byLayer, onOpen }: PicturesProps) => {
  const canvas = useRef<HTMLCanvasElement>(null);
  const turn = useRepaint(canvas);
  const here = useId();
  const grid = useRef<Grid | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const tip = useTip();
  const marked = useMemo(() => new Set(seen.marked.map((one) => Number(/H(\d+)/.exec(one.head)?.[1]) + seen.heads * Number(/L(\d+)/.exec(one.head)?.[1]))), [seen]);
  useEffect(() => {
    const element = canvas.current;
    if (!element?.clientWidth) return;
    const made = gridOf(element.clientWidth, shown.length, seen.heads, byLayer);
    grid.current = made;
    element.style.height = `${made.height}px`;
    const names = Array.from({ length: seen.layers * seen.heads }, (_, head) => nameOf(seen, head));
    paint(element, made, coloursOf(element.parentElement ?? element), { shown, names, marked, thumbs: seen.thumbs, side: seen.side, row, tokens, cursor });
  }, [seen, shown, row, tokens, cursor, turn, marked, byLayer]);
  const at = (event: MouseEvent): number | null => {
    const box = canvas.current?.getBoundingClientRect();
    return box && grid.current ? over(grid.current, event.clientX - box.left, event.clientY - box.top, shown.length) : null;
  };
  const says = (i: number): string => {
    const head = shown[i] ?? 0;
    const of = seen.statistics;
    const role = of.roles?.[head];
    return [
      `${nameOf(seen, head)}${role ? `, ${role}` : ''}`,
      `brings ${signed(of.brings[head], 3)} of the answer's log-probability`,
      `strongest attention ${number(of.highest[head])}, entropy ${number(of.entropy[head], 2)} of an even row`,
      `on sinks ${number(of.resting[head], 2)}`,
      ...(alike ? [`overlap of the rows ${number(alike[head], 2)}`] : []),
    ].join('\n');
  };
  const walk = (event: KeyboardEvent) => {
    const wide = grid.current?.columns ?? 1;
    const by = { ArrowUp: -wide, ArrowDown: wide, ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Enter' && cursor !== null) onOpen(shown[cursor] ?? 0);
    if (by === undefined) return;
    event.preventDefault();
    const next = cursor === null ? 0 : Math.max(0, Math.min(shown.length - 1, cursor + by));
    setCursor(next);
    const box = canvas.current?.getBoundingClientRect();
    const top = (box?.top ?? 0) + (grid.current ? spotOf(grid.current, next)[1] : 0);
    if (top < 80 || top > innerHeight - 120) scrollBy({ top: top - innerHeight / 2 });
  };
  return (
    <Figure class="pictures">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="grid"
        aria-rowcount={Math.ceil(shown.length / (grid.current?.columns ?? 1))}
        aria-activedescendant={here}
        aria-label="All heads: arrow keys move, Enter explains the head"
        onPointerMove={(event) => {
          const i = at(event);
          setCursor(i);
          if (i === null) tip.quiet();
          else tip.at(event, says(i));
        }}
        onPointerLeave={() => {
          tip.quiet();
          setCursor(null);
        }}
        onClick={(event) => {
          const i = at(event);
          if (i !== null) onOpen(shown[i] ?? 0);
        }}
        onKeyDown={walk}
      >
        <Here id={here}>{cursor === null ? '' : says(cursor)}</Here>
      </canvas>
      <p class="unseen-live" aria-live="polite">
        {cursor === null ? '' : says(cursor)}
      </p>
    </Figure>
  );
};
