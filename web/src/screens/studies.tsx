// Studies: what becomes of them, and how to begin, stop and continue one.
import { useCallback, useEffect, useState } from 'preact/hooks';
import type { Server } from '../host';
import { isolated, readable } from '../text';
import type { Trouble } from '../app/app';
import { troubleOf } from '../app/app';
import type { AnyStudy, RunList, StudyEntry } from '../app/wire';

const AGAIN = 700;

/** All run folders, looked at again and again while a study runs. */
export const useRuns = (server: Server, wanted = true) => {
  const [list, setList] = useState<RunList | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!wanted) return;
    let here = true;
    let wait: ReturnType<typeof setTimeout> | undefined;
    const look = (got: RunList) => {
      if (!here) return;
      setList(got);
      if (got.runs.some((one) => one.study?.state === 'running')) wait = setTimeout(() => here && setTurn((n) => n + 1), AGAIN);
    };
    server.get<RunList>('/api/runs').then(look, (error) => here && setTrouble(troubleOf(error)));
    return () => {
      here = false;
      clearTimeout(wait);
    };
  }, [server, turn, wanted]);
  // What ends elsewhere, too.
  useEffect(() => server.listen(({ kind }) => kind === 'runs' && setTurn((n) => n + 1)), [server]);
  const act = useCallback(
    async (work: Promise<StudyEntry>): Promise<StudyEntry | null> => {
      setTrouble(null);
      try {
        return await work;
      } catch (error) {
        setTrouble(troubleOf(error));
        return null;
      } finally {
        setTurn((n) => n + 1);
      }
    },
    [server],
  );
  return {
    list,
    trouble,
    begin: (study: AnyStudy['study']) => act(server.post<StudyEntry>('/api/studies', { study })),
    goOn: (id: string) => act(server.post<StudyEntry>(`/api/studies/${id}`, {})),
    stop: (id: string) => act(server.remove<StudyEntry>(`/api/studies/${id}`)),
  };
};
export type Runs = ReturnType<typeof useRuns>;

/** Where a study is, with what can be done about it. */
export const Progress = ({ study, runs }: { study: StudyEntry; runs: Runs }) => (
  <span class="study-state">
    <b class={study.state}>{study.state}</b>
    {study.state === 'running' && study.total ? (
      <>
        <progress max={study.total} value={study.done ?? 0} aria-label={`${study.stage ?? study.kind}: ${study.done} of ${study.total}`} /> {isolated(readable(study.stage ?? ''))} {study.done} of {study.total}
        {study.left ? `, ${study.left} left` : ''}
      </>
    ) : study.said ? (
      <> {isolated(readable(study.said))}</>
    ) : null}{' '}
    {study.state === 'running' ? (
      <button type="button" class="small" onClick={() => runs.stop(study.id)}>
        stop
      </button>
    ) : study.state === 'finished' ? null : (
      <button type="button" class="small" onClick={() => runs.goOn(study.id)}>
        continue
      </button>
    )}
  </span>
);

type Kind = Exclude<AnyStudy['study']['kind'], 'trace'>;
const KINDS: [Kind, string][] = [
  ['circuits', 'circuits of a task'],
  ['families', 'families of circuits'],
  ['features', 'features of a task'],
  ['sinks', 'sinks'],
  ['name', 'names of heads'],
];

/** The form that begins a study. */
export const Begin = ({ runs, head }: { runs: Runs; head: string | null }) => {
  const { list } = runs;
  const [kind, setKind] = useState<Kind>('circuits');
  const [task, setTask] = useState('');
  const [source, setSource] = useState(head ?? 'all heads');
  const [many, setMany] = useState('');
  if (!list) return null;
  const circuits = list.runs.filter((one) => one.entry.kind === 'circuits' && one.finished);
  const choices = kind === 'circuits' ? list.answer_tasks : kind === 'features' ? list.labelled_tasks : kind === 'families' ? circuits.map((one) => one.path) : [];
  const chosen = choices.includes(task) ? task : (choices[0] ?? '');
  const size = /^\d{1,6}$/.test(many) ? { prompts: Number(many) } : {};
  const study = (): AnyStudy['study'] => {
    if (kind === 'families') return { kind, runs: [chosen] };
    if (kind === 'name') return { kind, source, ...(size.prompts ? { texts: size.prompts } : {}) };
    return kind === 'sinks' ? { kind, ...size } : { kind, task: chosen, ...size };
  };
  return (
    <form
      class="row-of-controls begin-study"
      onSubmit={(event) => {
        event.preventDefault();
        void runs.begin(study());
      }}
    >
      <label>
        study{' '}
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value as Kind)}>
          {KINDS.map(([value, says]) => (
            <option value={value}>{says}</option>
          ))}
        </select>
      </label>
      {choices.length ? (
        <label>
          {kind === 'families' ? 'of' : 'task'}{' '}
          <select value={chosen} onChange={(event) => setTask(event.currentTarget.value)}>
            {choices.map((one) => (
              <option value={one}>{isolated(readable(one))}</option>
            ))}
          </select>
        </label>
      ) : null}
      {kind === 'name' ? (
        <label>
          heads <input value={source} onInput={(event) => setSource(event.currentTarget.value)} />
        </label>
      ) : null}
      {kind === 'families' ? null : (
        <label>
          {kind === 'name' ? 'texts' : 'prompts'} <input class="number" inputMode="numeric" placeholder="as usual" value={many} onInput={(event) => setMany(event.currentTarget.value)} />
        </label>
      )}
      <button type="submit" class="small" disabled={kind === 'families' && !chosen}>
        begin
      </button>
      <span class="soft">kept in {isolated(readable(list.folder))}; a study that was interrupted goes on where it was</span>
    </form>
  );
};
