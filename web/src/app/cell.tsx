// One cell: the explanation fills in as its parts become known.
import { useCallback, useEffect, useMemo, useState } from 'preact/hooks';
import type { GrowingDocument, LongPattern } from '../explanation/document';
import { ExplanationView } from '../explanation/page';
import type { Cell, Host, Tick } from '../host';
import { Tokens } from '../kit/tokens';
import { isolated, readable } from '../text';
import { ANSWER, Answers } from './answers';
import { Alert } from './alert';
import type { Shared, Trouble } from './app';
import { Asked, CELL } from './asked';
import { edit, format, nameOf, parse } from './edits';
import { useExplained } from './explaining';
import { up } from './keys';
import { useLater } from './later';
import { DRAWS, NOWHERE, placeOf, urlOf } from './place';
import { fitting, namesIn } from './named-runs';
import { Takeaway } from './takeaway';

export const CellScreen = ({ server, state, place, prompt, go, read }: Shared) => {
  const id = prompt?.id ?? null;
  const { head, query, key, answer, wrong, tau, draws, seed, features } = place;
  const names = namesIn(place, state);
  // Back may have led elsewhere before the question was heard, which must not be written over that place.
  const onFound = (found: { head: string; query: number; key: number }) => urlOf(placeOf(server.address.read())) === urlOf(place) && go(found, 'replace');
  const { shown, stage, trouble, stop } = useExplained({ server, read, id: state ? id : null, ask: { head, query, key, answer, wrong, tau, draws, seed, features, names }, onFound });

  const explain = useCallback((cell: Cell) => go({ screen: 'cell', ...cell, edits: '' }), [go]);
  // A new host with every tick: the table is drawn again.
  const host = useMemo<Host>(() => {
    const edits = parse(place.edits);
    const others = (one: Tick) => edits.filter((of) => nameOf(of) !== nameOf(edit(one)));
    const ticked = (one: Tick) => others(one).length < edits.length;
    return { explain, bench: { ticked, toggle: (one) => go({ edits: format(ticked(one) ? others(one) : [...edits, edit(one)]) }) } };
  }, [explain, go, place.edits]);
  const pattern = usePattern(server, id, shown?.known ?? {});
  const data = useMemo(() => (shown && pattern ? { ...shown.known, pattern } : (shown?.known ?? null)), [shown, pattern]);
  const { parts, trouble: missing } = useLater(server);
  if (!place.text.trim()) return <p>Type a prompt first.</p>;
  return (
    <section class="cell-screen" aria-busy={stage !== null}>
      {prompt ? <Answers prompt={prompt} place={place} go={go} /> : null}
      <Alert trouble={trouble} of={ANSWER} onChoose={(choice, where) => go({ [where]: choice })} />
      <div class="row-of-controls cell-controls">
        <Asked server={server} place={place} prompt={prompt} go={go} trouble={trouble} />
        <button type="button" class="small walk-up" disabled={place.key === null} onClick={() => up(place, go)}>
          who fed this?
        </button>
        <button type="button" class="small alike" disabled={place.key === null || !place.head} onClick={() => go({ screen: 'heads', row: place.query, to: false, sort: `like:${place.head}`, role: '' })}>
          heads with a similar row
        </button>
        <span class="stage" role="status">
          {stage === null ? '' : `${stage} …`}
        </span>
        {stage !== null ? (
          <button type="button" class="small" onClick={stop}>
            stop
          </button>
        ) : null}
        <Takeaway server={server} place={place} state={state} made={shown?.whole ? `/api/export/${shown.job}` : null} forms={['json', 'py']} />
      </div>
      <Beside state={state} place={place} go={go} />
      <Settings place={place} go={go} trouble={trouble} none={shown?.whole === true && data?.proof?.side === null} />
      <Alert trouble={shown?.known.refused ?? null} onChoose={(choice) => go({ head: choice, query: null, key: null, edits: '' })} />
      <Alert trouble={trouble} but={AT_FIELDS} />
      {data ? null : <h1>{place.head ?? 'One cell'}</h1>}
      {data?.head !== undefined && shown ? <ExplanationView key={`${data.head} ${data.query} ${data.key}`} data={data as GrowingDocument} host={host} beside /> : null}
      <Alert trouble={missing} />
      {data?.head !== undefined && shown && prompt && data.cause && parts ? (
        <Tokens.Provider value={prompt.tokens}>
          <parts.bench server={server} place={place} go={go} prompt={prompt} cell={{ head: data.head, query: data.query ?? 0, key: data.key ?? 0 }} known={data.features?.parts.map((one) => one.name) ?? []} />
        </Tokens.Provider>
      ) : null}
    </section>
  );
};

/** The head's pattern, for its picture and for the rows of other tokens: of a long prompt what a saved page has of it. */
const usePattern = (server: Shared['server'], id: string | null, { head, query, key }: Partial<GrowingDocument>) => {
  const [got, setGot] = useState<{ of: string; pattern: NonNullable<GrowingDocument['pattern']> } | null>(null);
  const of = `${id} ${head}`;
  const held = got?.of === of && (!('picture' in got.pattern) || (got.pattern.query === query && got.pattern.key === key)) ? got.pattern : null;
  useEffect(() => {
    if (id === null || head === undefined || held) return;
    let wanted = true;
    server.bytes(`/api/prompts/${id}/pattern/${head}?query=${query}&key=${key}`).then(
      ({ shape: [, bytes], data }) => wanted && setGot({ of, pattern: bytes ? { bytes: bytes as 1 | 2, cells: data } : (JSON.parse(new TextDecoder().decode(data)) as LongPattern) }),
      () => undefined,
    );
    return () => {
      wanted = false;
    };
  }, [server, of, query, key]);
  return held;
};

const SETTINGS = [
  ['tau', 'attention must fall below', 'as usual', 0.01],
  ['draws', 'random removals of each kind', String(DRAWS), 1],
  ['seed', 'seed', '0', 1],
] as const;

const AT_FIELDS = [...ANSWER, ...CELL, ...SETTINGS.map(([name]) => name)];

/** What else changes a number: how small the attention must become without its cause, and the random draws. */
const Settings = ({ place, go, trouble, none }: Pick<Shared, 'place' | 'go'> & { trouble: Trouble | null; /** No cause was found. */ none: boolean }) => (
  <details class="settings" open={none || SETTINGS.some(([name]) => name === trouble?.where) || undefined}>
    <summary>settings</summary>
    {none ? <p class="note">No cause of allowed size: nothing takes this attention below the bound. With a higher bound there may be one.</p> : null}
    <div class="row-of-controls">
      {SETTINGS.map((one) => (
        <Setting of={one} place={place} go={go} />
      ))}
    </div>
    <Alert trouble={trouble} of={SETTINGS.map(([name]) => name)} />
  </details>
);

/** What is typed stays until it is taken, whatever is drawn meanwhile. */
const Setting = ({ of: [name, says, usual, step], place, go }: Pick<Shared, 'place' | 'go'> & { of: (typeof SETTINGS)[number] }) => {
  const [typed, setTyped] = useState<string | null>(null);
  return (
    <label>
      {says}{' '}
      <input
        type="number"
        class="number"
        min={name === 'seed' ? 0 : step}
        max={name === 'tau' ? 1 : name === 'draws' ? 9999 : undefined}
        step={name === 'tau' ? 'any' : 1}
        placeholder={usual}
        value={typed ?? (place[name] === NOWHERE[name] ? '' : (place[name] ?? ''))}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => {
          const { value, validity } = event.currentTarget;
          if (!validity.valid) return void event.currentTarget.reportValidity();
          setTyped(null);
          go({ [name]: value === '' ? NOWHERE[name] : Number(value) });
        }}
      />
    </label>
  );
};

/** Run folders whose features and names an explanation uses, where there are some. */
const Beside = ({ state, place, go }: Pick<Shared, 'state' | 'place' | 'go'>) => {
  const [banks, named] = [fitting(state, ['features', 'unlabelled']), fitting(state, ['names'])];
  if (!banks.length && !named.length) return null;
  const { features } = place;
  return (
    <div class="row-of-controls beside-runs">
      {banks.map(({ index, name }) => (
        <label>
          <input type="checkbox" checked={features.includes(index)} onChange={() => go({ features: features.includes(index) ? features.filter((one) => one !== index) : [...features, index] })} /> features of {isolated(readable(name))}
        </label>
      ))}
      {named.length ? (
        <label>
          names of{' '}
          <select value={namesIn(place, state) ?? -1} onChange={(event) => go({ named: Number(event.currentTarget.value) })}>
            {named.map(({ index, name }) => (
              <option value={index}>{isolated(readable(name))}</option>
            ))}
            <option value={-1}>none</option>
          </select>
        </label>
      ) : null}
    </div>
  );
};
