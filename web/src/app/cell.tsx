// One cell: the explanation fills in as its parts become known.
import { useCallback, useEffect, useMemo, useState } from 'preact/hooks';
import type { GrowingDocument } from '../explanation/document';
import { ExplanationView } from '../explanation/page';
import type { Cell, Host, Tickable } from '../host';
import { Tokens } from '../kit/tokens';
import { Answers } from './answers';
import type { Shared } from './app';
import { Bench } from './bench';
import { format, parse, same } from './edits';
import { useExplained } from './explaining';
import { up } from './keys';
import { commandOf, pythonOf, urlOf } from './place';

export const CellScreen = ({ server, state, place, prompt, go, read, onState }: Shared & { onState: (there: boolean) => void }) => {
  const id = prompt?.id ?? null;
  const { head, query, key, answer, wrong, draws, seed } = place;
  const { shown, stage, trouble, stop } = useExplained({ server, read, id, ask: { head, query, key, answer, wrong, draws, seed }, onFound: (found) => go(found, 'replace'), onState });

  const explain = useCallback((cell: Cell) => go({ screen: 'cell', ...cell, edits: '' }), [go]);
  // A new host with every tick: the table is drawn again.
  const host = useMemo<Host>(() => {
    const edits = parse(place.edits);
    const toggle = (one: Tickable) => {
      const left = edits.filter((edit) => !same(edit, one));
      // Either side takes the whole score away: ticks are of one side.
      const kept = left.filter((edit) => edit.kind !== 'remove' || edit.side === one.side);
      go({ edits: format(left.length < edits.length ? left : [...kept, { kind: 'remove', ...one }]) });
    };
    return { explain, bench: { ticked: (one) => edits.some((edit) => same(edit, one)), toggle } };
  }, [explain, go, place.edits]);
  const pattern = usePattern(server, id, shown?.known.head ?? null);
  const data = useMemo(() => (shown && pattern && pattern.head === shown.known.head ? { ...shown.known, pattern: pattern.cells } : (shown?.known ?? null)), [shown, pattern]);
  if (!place.text.trim()) return <p>Type a prompt first.</p>;
  return (
    <section class="cell-screen" aria-busy={stage !== null}>
      {prompt ? <Answers prompt={prompt} place={place} go={go} /> : null}
      <div class="row-of-controls cell-controls">
        <span class="stage" role="status">
          {stage === null ? '' : `${stage} …`}
        </span>
        {stage !== null ? (
          <button type="button" class="small" onClick={stop}>
            stop
          </button>
        ) : null}
        <button type="button" class="small walk-up" disabled={place.key === null} onClick={() => up(place, go)}>
          who fed this?
        </button>
        <Takeaway server={server} place={place} model={state?.model ?? ''} job={shown?.whole ? shown.job : null} />
      </div>
      {trouble ? (
        <p class="note" role="alert">
          {trouble.error}
        </p>
      ) : null}
      {data ? null : <h1>{place.head ?? 'One cell'}</h1>}
      {data?.head !== undefined && shown ? <ExplanationView key={`${data.head} ${data.query} ${data.key}`} data={data as GrowingDocument} host={host} /> : null}
      {data?.head !== undefined && shown && prompt && data.cause ? (
        <Tokens.Provider value={prompt.tokens}>
          <Bench server={server} place={place} go={go} prompt={prompt} cell={{ head: data.head, query: data.query ?? 0, key: data.key ?? 0 }} />
        </Tokens.Provider>
      ) : null}
    </section>
  );
};

/** The whole head, for its picture and for the rows of other tokens. */
const usePattern = (server: Shared['server'], id: string | null, head: string | null) => {
  const [got, setGot] = useState<{ head: string; cells: { bytes: 1 | 2; cells: Uint8Array } } | null>(null);
  useEffect(() => {
    if (id === null || head === null) return;
    let wanted = true;
    server.bytes(`/api/prompts/${id}/pattern/${head}`).then(
      ({ shape, data }) => wanted && setGot({ head, cells: { bytes: shape[1] === 1 ? 1 : 2, cells: data } }),
      () => undefined,
    );
    return () => {
      wanted = false;
    };
  }, [server, id, head]);
  return got;
};

/** Everything that is shown can be taken along. */
const Takeaway = ({ server, place, model, job }: Pick<Shared, 'server' | 'place'> & { model: string; job: string | null }) => {
  const [said, setSaid] = useState('');
  const copy = (what: string, text: string) =>
    server.copy(text).then(
      () => setSaid(`${what} copied`),
      () => setSaid(`the browser does not let the page copy: ${text}`),
    );
  const name = `${place.head ?? 'explanation'}-${place.query ?? ''}-${place.key ?? ''}`;
  return (
    <span class="takeaway" role="group" aria-label="Take this along">
      <button type="button" class="small" onClick={() => copy('link', server.address.whole(urlOf(place)))}>
        copy link
      </button>
      <button type="button" class="small" onClick={() => copy('command', commandOf(place, model))}>
        copy command
      </button>
      <button type="button" class="small" onClick={() => copy('Python', pythonOf(place, model))}>
        copy Python
      </button>
      <button type="button" class="small" disabled={job === null} onClick={() => job && server.save(`/api/export/${job}.html`, `${name}.html`)}>
        save page
      </button>
      <button type="button" class="small" disabled={job === null} onClick={() => job && server.save(`/api/export/${job}.json`, `${name}.json`)}>
        save JSON
      </button>
      <span class="soft" role="status">
        {said}
      </span>
    </span>
  );
};
