// Run folders: those named on the command line and those of studies, their tables, and their pages in a frame that has
// no rights.
import { useEffect, useRef, useState } from 'preact/hooks';
import { number } from '../numbers';
import { isolated, readable, visible } from '../text';
import { Alert } from '../app/alert';
import type { Shared, Trouble } from '../app/app';
import { troubleOf } from '../app/app';
import { placeFrom } from '../app/place';
import { Begin, Progress, useRuns } from './studies';
import type { RunSeen, TableSeen } from '../app/wire';

export const RunsScreen = ({ server, place, go }: Pick<Shared, 'server' | 'place' | 'go'>) => {
  const runs = useRuns(server);
  const shown = runs.list?.runs.find((one) => one.entry.index === place.run);
  return (
    <section class="runs-screen">
      <h1>Runs</h1>
      <Begin runs={runs} head={place.head} />
      <Alert trouble={runs.trouble} />
      {runs.list?.runs.length ? (
        <div class="scroll" tabIndex={0} role="group" aria-label="Run folders">
          <table class="run-list">
            <thead>
              <tr>
                {['folder', 'what', 'state', 'tables', 'saved pages'].map((one) => (
                  <th scope="col">{one}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {runs.list.runs.map((one) => (
                <Folder key={one.entry.index} run={one} runs={runs} place={place} go={go} />
              ))}
            </tbody>
          </table>
        </div>
      ) : runs.list ? (
        <p>There is no run folder yet: begin a study, or start the app with --runs DIR.</p>
      ) : null}
      {shown && place.table ? <Table key={`${place.run} ${place.table}`} server={server} run={shown} place={place} go={go} /> : null}
      {shown && (shown.entry.pages.includes(place.page) || OF_A_HEAD.test(place.page)) ? <Saved run={shown.entry.index} page={place.page} go={go} /> : null}
    </section>
  );
};

/** The page of one head of an atlas, to which its index leads. */
const OF_A_HEAD = /^L\d{1,4}H\d{1,4}\.html$/;

/** A saved page. It has no rights, so to go to another page of its folder it has to say so. */
const Saved = ({ run, page, go }: { run: number; page: string } & Pick<Shared, 'go'>) => {
  const frame = useRef<HTMLIFrameElement>(null);
  useEffect(() => {
    const heard = ({ source, data }: MessageEvent) => {
      const wanted: unknown = source && source === frame.current?.contentWindow ? data?.page : null;
      if (typeof wanted === 'string' && (wanted === 'report.html' || OF_A_HEAD.test(wanted))) go({ page: wanted });
    };
    addEventListener('message', heard);
    return () => removeEventListener('message', heard);
  }, [go]);
  // The list of folders may be long.
  useEffect(() => frame.current?.scrollIntoView(), []);
  return <iframe ref={frame} key={page} class="saved-page" sandbox="allow-scripts" src={`/api/runs/${run}/${encodeURIComponent(page)}`} title={`Saved page ${readable(page)}`} />;
};

const Folder = ({ run, runs, place, go }: { run: RunSeen; runs: ReturnType<typeof useRuns> } & Pick<Shared, 'place' | 'go'>) => {
  const { index, name, kind, pages } = run.entry;
  return (
    <tr>
      <th scope="row">{isolated(readable(name))}</th>
      <td>{isolated(readable(run.study?.about ?? kind ?? 'not a run folder'))}</td>
      <td>{run.study ? <Progress study={run.study} runs={runs} /> : run.finished ? 'finished' : 'not finished'}</td>
      <td>
        {run.study?.kind === 'trace' && run.finished ? (
          <button type="button" class="small" onClick={() => go({ screen: 'circuit', run: index, circuit: 0 })}>
            circuit
          </button>
        ) : null}
        {run.tables.map((one) => (
          <button type="button" class="small" aria-pressed={index === place.run && one.name === place.table} onClick={() => go({ run: index, table: one.name, page: '', words: '', order: '', start: 0 })}>
            {isolated(readable(one.name))} <span class="n">{one.rows}</span>
          </button>
        ))}
      </td>
      <td>
        {pages.map((page) => (
          <button type="button" class="small" aria-pressed={index === place.run && page === place.page} onClick={() => go({ run: index, page, table: '' })}>
            {isolated(readable(page))}
          </button>
        ))}
      </td>
    </tr>
  );
};

const STEP = 50;

const Table = ({ server, run, place, go }: { run: RunSeen } & Pick<Shared, 'server' | 'place' | 'go'>) => {
  const [seen, setSeen] = useState<TableSeen | null>(null);
  const box = useRef<HTMLElement>(null);
  // The list of folders may be long: what was chosen in it comes into sight once it is there.
  useEffect(() => {
    if (seen) box.current?.scrollIntoView();
  }, [seen === null]);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const { table, words, order, start } = place;
  const [column, down] = [order.replace(/^-/, ''), order.startsWith('-')];
  useEffect(() => {
    let wanted = true;
    const asked = new URLSearchParams({ start: String(start), sort: column, down: down ? '1' : '', words });
    // Words are typed letter by letter.
    const wait = setTimeout(() => {
      server.get<TableSeen>(`/api/runs/${run.entry.index}/tables/${encodeURIComponent(table)}?${asked}`).then(
        (got) => {
          if (!wanted) return;
          setSeen(got);
          setTrouble(null);
        },
        (error) => wanted && setTrouble(troubleOf(error)),
      );
    }, 150);
    return () => {
      wanted = false;
      clearTimeout(wait);
    };
  }, [server, run.entry.index, table, words, order, start]);
  // A row of a bank leads to its head with the bank's features.
  const { index, kind, fits } = run.entry;
  const bank = fits && ['features', 'unlabelled'].includes(kind ?? '') ? { features: [index] } : {};
  const turn = (name: string) => go({ order: column !== name ? `-${name}` : down ? name : '', start: 0 }, 'replace');
  return (
    <section class="run-table" ref={box}>
      <h2>{isolated(readable(table))}</h2>
      <div class="row-of-controls">
        <label>
          only rows with <input type="search" value={words} placeholder="words, side=query, weight>0.2" onInput={(event) => go({ words: event.currentTarget.value, start: 0 }, 'replace')} />
        </label>
        {seen ? (
          <span class="soft" role="status">
            {seen.matching} of {seen.total} rows{seen.matching > STEP ? `, from ${seen.start + 1}` : ''}
          </span>
        ) : null}
        <button type="button" class="small" disabled={start <= 0} onClick={() => go({ start: Math.max(0, start - STEP) }, 'replace')}>
          before
        </button>
        <button type="button" class="small" disabled={!seen || start + STEP >= seen.matching} onClick={() => go({ start: start + STEP }, 'replace')}>
          next
        </button>
      </div>
      <Alert trouble={trouble} />
      {seen ? (
        <div class="scroll" tabIndex={0} role="group" aria-label={`Table ${readable(table)}`}>
          <table>
            <thead>
              <tr>
                <th scope="col">
                  <span class="unseen-live">open</span>
                </th>
                {seen.columns.map((one) => (
                  <th scope="col" class={one.number ? 'n' : ''} data-say={one.meaning} aria-sort={one.name === column ? (down ? 'descending' : 'ascending') : undefined}>
                    <button type="button" onClick={() => turn(one.name)}>
                      {isolated(readable(one.name))}
                      {one.name === column ? (down ? ' ↓' : ' ↑') : ''}
                    </button>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {seen.rows.map((row) => (
                <tr>
                  <td>
                    {row.place['p'] || (row.place['h'] && place.text) ? (
                      <button type="button" class="small explain" onClick={() => go({ ...placeFrom(row.place), run: null, ...bank })}>
                        {row.place['h'] ? 'why?' : 'all heads'}
                      </button>
                    ) : null}
                    {row.place['c'] ? (
                      <button type="button" class="small explain" onClick={() => go({ ...placeFrom(row.place), screen: 'circuit', run: run.entry.index, circuit: Number(row.place['c']) })}>
                        circuit
                      </button>
                    ) : null}
                  </td>
                  {row.cells.map((value, i) => (
                    <td class={seen.columns[i]?.number ? 'n' : ''}>{typeof value === 'number' ? (Number.isInteger(value) ? String(value) : number(value)) : value === null ? '–' : typeof value === 'string' ? isolated(visible(value)) : String(value)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
    </section>
  );
};
