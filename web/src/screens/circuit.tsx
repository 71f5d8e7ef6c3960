// The circuit, walked up by clicks: a box that is clicked shows who fed it, and a head is explained beside it.
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { CircuitDocument } from '../circuit/document';
import { Edges } from '../circuit/edges';
import type { GraphEdge, GraphNode, Line } from '../circuit/graph';
import { graphOf } from '../circuit/graph';
import { CircuitView } from '../circuit/page';
import { LineKey, Picture, useName } from '../circuit/picture';
import type { ExplanationDocument } from '../explanation/document';
import { words } from '../explanation/proof';
import { Prose } from '../explanation/sentence';
import type { Host } from '../host';
import { Figure } from '../kit/figure';
import { Tokens } from '../kit/tokens';
import { share } from '../numbers';
import { isolated, plural, readable } from '../text';
import { Alert } from '../app/alert';
import { ANSWER, Answers } from '../app/answers';
import type { Shared, Trouble } from '../app/app';
import { troubleOf } from '../app/app';
import { edit, format } from '../app/edits';
import { newJob, useExplained } from '../app/explaining';
import { listOf } from '../app/place';
import { Takeaway } from '../app/takeaway';
import type { TraceStudy } from '../app/wire';
import { formatNames, GROUP, namesOf, pathTo, rename, withNames } from './named';
import { Progress, useRuns } from './studies';

const FIRING = /^(L(\d{1,4})H\d{1,4})@(\d{1,6})<-(\d{1,6})$/;
const cellOf = (id: string) => {
  const found = FIRING.exec(id);
  return found ? { head: found[1] as string, query: Number(found[3]), key: Number(found[4]) } : null;
};
const opens = (node: GraphNode): boolean => node.kind === 'mlp' || (node.kind === 'head' && node.row > 0 && (node.at ?? 0) > 0);

export const CircuitScreen = (props: Shared) => {
  const { prompt, place } = props;
  if (!place.text.trim()) return <p>Type a prompt first.</p>;
  return (
    <section class="circuit-screen">
      <h1>Circuit</h1>
      {prompt ? (
        <Tokens.Provider value={prompt.tokens}>
          <Answers prompt={prompt} place={place} go={props.go} />
          {place.run === null ? <Walk {...props} /> : <Whole {...props} run={place.run} />}
        </Tokens.Provider>
      ) : (
        <p class="soft" role="status">
          The model is reading …
        </p>
      )}
    </section>
  );
};

const Walk = ({ server, state, place, prompt, go, read }: Shared) => {
  const opened = useMemo(() => listOf(place.opened), [place.opened]);
  const names = useMemo(() => namesOf(place.names), [place.names]);
  const [together, setTogether] = useState(true);
  const { data, job, trouble, running } = useWalk({ server, place, prompt, read }, opened);
  const bare = useMemo(() => {
    const graph = data ? graphOf(data) : { nodes: new Map<string, GraphNode>(), edges: [] };
    return { ...graph, nodes: new Map([...graph.nodes].map(([id, node]) => [id, { ...node, marked: opened.includes(id) }])) };
  }, [data, opened]);
  const graph = useMemo(() => withNames(bare, names, together), [bare, names, together]);
  const nameOf = useName();
  const node = graph.nodes.get(place.node) ?? bare.nodes.get(place.node);
  const path = useMemo(() => (node ? pathTo(graph, node.id) : []), [graph, node]);
  const lines = (['answer', 'query', 'key', 'account'] as Line[]).filter((line) => graph.edges.some((e) => e.line === line));

  const choose = (id: string | null) => {
    const one = id === null ? undefined : graph.nodes.get(id);
    if (!one) return go({ node: '' }, 'replace');
    const more = opens(one) && !opened.includes(one.id);
    go({ node: one.id, ...(cellOf(one.id) ?? {}), ...(more ? { opened: [...opened, one.id].join(',') } : {}) }, more ? 'push' : 'replace');
  };
  const close = (id: string) => go({ opened: opened.filter((one) => one !== id).join(',') });
  // On the bench of the cell where the walk begins, or of the one that the edge leads to.
  const take = ({ source, target, line, channels }: GraphEdge) => {
    const [into, [writer = '', read]] = [cellOf(target), source.replace(/@\d+/, '').split('<-')];
    if (into) go({ screen: 'cell', ...(begin ?? into), edits: format([edit({ kind: 'ed', target: into, side: line === 'key' ? 'key' : 'query', writer, reads: read === undefined ? null : Number(read), channels })]) });
  };
  const begin = place.root ? cellOf(place.root) : null;
  return (
    <>
      <Alert trouble={trouble} of={ANSWER} onChoose={(choice, where) => go({ [where]: choice })} />
      <Takeaway server={server} place={place} state={state} made={job && `/api/export/${job}`} forms={['json', 'py', 'graphml']} />
      <p class="soft">
        {begin ? `Who fed ${begin.head} where it reads from position ${begin.query} to ${begin.key}.` : 'What brings the answer to the last token.'} Click a box to see who fed it; thick frames are opened. Width: the attention, or the part of the answer, that goes without it.
      </p>
      <nav class="crumbs" aria-label="Way from the answer">
        {path.map((one, i) => (
          <>
            {i ? ' ‹ ' : ''}
            <button type="button" class="small" aria-current={i === path.length - 1 ? 'step' : undefined} onClick={() => choose(one.id)}>
              {one.title}
              {one.reads === null ? '' : ` ${one.at}←${one.reads}`}
            </button>
          </>
        ))}
      </nav>
      <div class="row-of-controls">
        {place.root ? (
          <button type="button" class="small" onClick={() => go({ root: '', opened: '', node: '' })}>
            from the answer
          </button>
        ) : null}
        <button type="button" class="small" disabled={!opened.length} onClick={() => go({ opened: '', node: '' })}>
          close all
        </button>
        <TraceAll server={server} place={place} go={go} />
        {names.size ? (
          <label>
            <input type="checkbox" checked={together} onChange={(event) => setTogether(event.currentTarget.checked)} /> one box for each name
          </label>
        ) : null}
        <span class="stage" role="status">
          {running ? 'searching …' : data ? `${plural(graph.nodes.size, 'box').replace('boxs', 'boxes')}, ${plural(graph.edges.length, 'line')}` : ''}
        </span>
      </div>
      <Alert trouble={trouble} but={ANSWER} />
      {data?.notes.map((line) => (
        <p class="note">{readable(line)}</p>
      ))}
      {graph.nodes.size ? (
        <Figure>
          <LineKey lines={lines} />
          <Picture graph={graph} pinned={node?.id ?? null} onPin={(id) => choose(id ?? node?.id ?? null)} label="Circuit as far as it was opened: tokens from left to right, layers from the bottom up" />
        </Figure>
      ) : data ? (
        <p>There is nothing to draw.</p>
      ) : null}
      {node ? (
        <aside class="node-panel" aria-label={nameOf(node)}>
          <h2>{nameOf(node)}</h2>
          <div class="row-of-controls">
            {opened.includes(node.id) ? (
              <button type="button" class="small" onClick={() => close(node.id)}>
                close it
              </button>
            ) : null}
            {cellOf(node.id) ? (
              <>
                <button type="button" class="small open-cell" onClick={() => go({ screen: 'cell', ...cellOf(node.id), edits: '' })}>
                  open its cell
                </button>
                {place.root === node.id ? null : (
                  <button type="button" class="small" onClick={() => go({ root: node.id, opened: node.id })}>
                    begin here
                  </button>
                )}
              </>
            ) : null}
            <Naming key={node.id} node={node} names={names} onName={(ids, name) => go({ names: formatNames(rename(names, ids, name)), node: node.id.startsWith(GROUP) ? '' : node.id })} />
          </div>
          {opens(node) || node.kind === 'answer' || node.kind === 'group' ? null : <p class="soft">Here the way ends: nothing of the model fed this.</p>}
          <Left data={data} id={node.id} />
          <Why server={server} place={place} prompt={prompt} read={read} id={node.id} />
        </aside>
      ) : null}
      {graph.edges.length ? <Edges graph={graph} pinned={node?.id ?? null} matches={null} onPick={(id) => choose(id)} onTry={take} /> : null}
    </>
  );
};

/** All of it at once: a study of its own, which can be stopped, and looked at again later. */
const TraceAll = ({ server, place, go }: Pick<Shared, 'server' | 'place' | 'go'>) => {
  const [id, setId] = useState<string | null>(null);
  const runs = useRuns(server);
  const { text, chat, answer, wrong } = place;
  const isThis = (of: TraceStudy | null | undefined) => of?.text === text && of.chat === chat && of.answer === answer && of.wrong === wrong;
  // One that another tab began, or an app before this one, is looked at as well.
  const run = runs.list?.runs.findLast((one) => (id === null ? isThis(one.study?.trace) : one.study?.id === id));
  useEffect(() => {
    if (id !== null && run?.study?.state === 'finished') go({ run: run.entry.index, circuit: 0 });
  }, [id, run?.study?.state]);
  return (
    <>
      <button type="button" class="small trace-all" disabled={run?.study?.state === 'running'} onClick={() => runs.begin({ kind: 'trace', text, chat, answer, wrong }).then((begun) => begun && setId(begun.id))}>
        trace all
      </button>
      {run?.study ? <Progress study={run.study} runs={runs} /> : null}
      {run?.study?.state === 'finished' ? (
        <button type="button" class="small" onClick={() => go({ run: run.entry.index, circuit: 0 })}>
          open it
        </button>
      ) : null}
      {runs.trouble ? <span role="alert">{runs.trouble.error}</span> : null}
    </>
  );
};

/** A circuit that was traced whole. */
const Whole = ({ server, state, place, go, run }: Shared & { run: number }) => {
  const made = `/api/runs/${run}/circuits/${place.circuit}`;
  const [data, setData] = useState<CircuitDocument | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  useEffect(() => {
    server.get<CircuitDocument>(made).then(setData, (error) => setTrouble(troubleOf(error)));
  }, [server, made]);
  const host = useMemo<Host>(() => ({ explain: (cell) => go({ screen: 'cell', ...cell, run: null, edits: '' }) }), [go]);
  return (
    <>
      <div class="row-of-controls">
        <button type="button" class="small" onClick={() => go({ run: null, circuit: 0 })}>
          back to the walk
        </button>
        <Takeaway server={server} place={place} state={state} made={data && made} forms={data?.answer?.includes(' / ') || data?.answer_id === null ? ['json', 'graphml'] : ['json', 'py', 'graphml']} />
      </div>
      <Alert trouble={trouble} />
      {data ? (
        <Tokens.Provider value={data.tokens}>
          <CircuitView data={data} host={host} />
        </Tokens.Provider>
      ) : null}
    </>
  );
};

/** The walk of the address; the one before it stays until the next is known. */
const useWalk = ({ server, place, prompt, read }: Pick<Shared, 'server' | 'place' | 'prompt' | 'read'>, opened: readonly string[]) => {
  const [{ data, job }, setData] = useState<{ data: CircuitDocument | null; job: string | null }>({ data: null, job: null });
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const [running, setRunning] = useState(false);
  const id = prompt?.id ?? null;
  const key = JSON.stringify([id, place.answer, place.wrong, place.root, opened]);
  useEffect(() => {
    if (id === null) return;
    let wanted = true;
    setRunning(true);
    setTrouble(null);
    const { answer, wrong, root } = place;
    const mine = newJob();
    server
      .post<CircuitDocument>('/api/walk', { tab: server.tab, job: mine, prompt: id, answer, wrong, root: root || null, opened })
      .then((got) => wanted && setData({ data: got, job: mine }))
      .catch((error) => {
        if (!wanted) return;
        const said = troubleOf(error);
        if (said && /no longer in memory/.test(said.error)) void read();
        else setTrouble(said);
      })
      .finally(() => wanted && setRunning(false));
    return () => {
      wanted = false;
    };
  }, [server, key]);
  return { data, job, trouble, running };
};

/** Nodes of one name become one box. */
const Naming = ({ node, names, onName }: { node: GraphNode; names: ReadonlyMap<string, string>; onName: (ids: readonly string[], name: string) => void }) => {
  const group = node.id.startsWith(GROUP) ? node.id.slice(GROUP.length) : null;
  const before = group ?? names.get(node.id) ?? '';
  const [name, setName] = useState(before);
  const ids = group === null ? [node.id] : [...names].filter(([, one]) => one === group).map(([id]) => id);
  return (
    <form
      class="patch naming"
      onSubmit={(event) => {
        event.preventDefault();
        onName(ids, name);
      }}
    >
      <label>
        name <input value={name} maxLength={60} list="known-names" placeholder="the same name makes one box" onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <datalist id="known-names">
        {[...new Set(names.values())].map((one) => (
          <option value={one} />
        ))}
      </datalist>
      <button type="submit" class="small" disabled={name.trim() === before}>
        name it
      </button>
      {before ? (
        <button type="button" class="small" onClick={() => onName(ids, '')}>
          {group === null ? 'take its name away' : 'take apart'}
        </button>
      ) : null}
    </form>
  );
};

/** What is left of a head's attention without what was found. */
const Left = ({ data, id }: { data: CircuitDocument | null; id: string }) => {
  const left = (data?.counterfactuals ?? []).filter((one) => one.target === id);
  if (!left.length) return null;
  return (
    <ul class="soft">
      {left.map((one) => (
        <li>
          Without what enters its {one.side} here, this attention of {share(one.attention)} would be {share(one.predicted)}.
        </li>
      ))}
    </ul>
  );
};

/** The explanation of the head in focus, in its own words. */
const Why = ({ server, place, prompt, read, id }: Pick<Shared, 'server' | 'place' | 'prompt' | 'read'> & { id: string }) => {
  const cell = cellOf(id);
  const { answer, wrong, draws, seed } = place;
  const { shown, stage, trouble } = useExplained({ server, read, id: cell && prompt ? prompt.id : null, ask: { head: cell?.head ?? null, query: cell?.query ?? null, key: cell?.key ?? null, answer, wrong, draws, seed } });
  const known = shown?.whole ? (shown.known as ExplanationDocument) : null;
  if (!cell) return null;
  if (trouble) return <p class="note">{trouble.error}</p>;
  if (!known)
    return (
      <p class="soft" role="status">
        {stage === null ? 'explaining' : stage} …
      </p>
    );
  return (
    <>
      <p class="lead sentence">
        <Prose text={known.sentence} quoted={known.quoted} />
      </p>
      <p class="chips">
        {words(known).map((one) => (
          <span class={`chip ${one.state}`} title={one.says}>
            {one.state === 'unknown' ? `${one.word}: not measured` : isolated(one.word)}
          </span>
        ))}
      </p>
    </>
  );
};
