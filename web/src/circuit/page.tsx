// The page of a circuit: it opens at the answer with the edges that carry most, and grows on request.
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Host } from '../host';
import { Figure } from '../kit/figure';
import { NamesTable } from '../kit/names';
import { Page } from '../kit/page';
import { Tokens } from '../kit/tokens';
import { signed } from '../numbers';
import { isolated, plural, readable, visible } from '../text';
import type { CircuitDocument, FamilyNote } from './document';
import { Edges } from './edges';
import type { GraphNode, Grouping, Line } from './graph';
import { graphOf, grouped, kindOf, opening, part } from './graph';
import { LineKey, Picture, useName } from './picture';

export const OPENING = 30;
const GROUPINGS: readonly [Grouping, string][] = [
  ['none', 'not at all'],
  ['layer', 'by layer'],
  ['head', 'by head'],
  ['token', 'by token'],
];

const quotedText = (text: string | null): string => (text === null ? 'this' : `‘${isolated(visible(text))}’`);

export const CircuitPage = ({ data, host }: { data: CircuitDocument; host: Host }) => (
  <Page kind="circuit" glossary={data.glossary}>
    <Tokens.Provider value={data.tokens}>
      <main>
        {data.family ? <FamilyHead data={data} family={data.family} /> : <Head data={data} />}
        <CircuitView data={data} host={host} />
      </main>
    </Tokens.Provider>
  </Page>
);

const FamilyHead = ({ data, family }: { data: CircuitDocument; family: FamilyNote }) => (
  <header>
    <p class="kicker">
      headwise · {isolated(readable(String(data.model.name)))} · {isolated(readable(family.task))}
    </p>
    <h1>The circuit of family {isolated(readable(family.name))}</h1>
    <p class="lead">
      {plural(family.circuits, 'circuit')} of {family.of} as one: of {plural(family.all_edges, 'edge')} between components, the {data.edges.length} that are in at least {Math.round(100 * family.pruned)} % of them and lead to the answer. Token positions are dropped; weights are per circuit.
    </p>
    {data.prompt === null ? null : <p class="soft">Nearest to all others: {isolated(readable(data.prompt))}</p>}
  </header>
);

const Head = ({ data }: { data: CircuitDocument }) => {
  const heads = data.nodes.filter((n) => n.kind === 'head').length;
  const accounts = data.edges.filter((e) => kindOf(e) === 'account').length;
  const rest = [data.top !== null && data.top !== undefined && data.top !== data.answer ? `most likely: ${quotedText(data.top)}` : '', data.difference === null || data.difference === undefined ? '' : `lead ${signed(data.difference)}`];
  return (
    <header>
      <p class="kicker">headwise · {isolated(readable(String(data.model.name)))} · {readable(String(data.mode))} mode</p>
      <h1>
        Why {quotedText(data.answer)}
        {data.wrong === null ? '' : ` and not ${quotedText(data.wrong)}`}?
      </h1>
      <p class="lead">{readable(data.prompt ?? data.tokens.join(''))}</p>
      <p class="soft">{[`${plural(heads, 'reading')} by heads, ${plural(data.nodes.length, 'node')}, ${plural(data.edges.length - accounts, 'edge')}${accounts ? `, ${plural(accounts, 'account')} through MLPs` : ''}`, ...rest].filter(Boolean).join(' · ')}</p>
      {data.notes.map((line) => (
        <p class="note">{readable(String(line))}</p>
      ))}
    </header>
  );
};

/** The circuit itself, with its controls: also for an app that has its own heading. */
export const CircuitView = ({ data, host }: { data: CircuitDocument; host: Host }) => {
  const whole = useMemo(() => graphOf(data), [data]);
  const [most, setMost] = useState(OPENING);
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [by, setBy] = useState<Grouping>(data.family ? 'head' : 'none');
  const [minor, setMinor] = useState(true);
  const [words, setWords] = useState('');
  const [pinned, setPinned] = useState<string | null>(null);
  const nameOf = useName();

  const first = useMemo(() => opening(whole, most), [whole, most]);
  const chosen = useMemo(() => {
    const leaf = (id: string) => !['head', 'answer'].includes(whole.nodes.get(id)?.kind ?? '');
    return part(whole, (e) => (first.has(e.id) || opened.has(e.target)) && (minor || !(leaf(e.source) || leaf(e.target))));
  }, [whole, first, opened, minor]);
  const graph = useMemo(() => grouped(chosen, by), [chosen, by]);
  const inside = chosen.edges.length - graph.edges.reduce((a, e) => a + e.size, 0);
  const lines = useMemo(() => (['answer', 'query', 'key', 'account'] as Line[]).filter((line) => whole.edges.some((e) => e.line === line)), [whole]);
  const search = words.trim().toLowerCase();
  const found = (node: GraphNode) => search !== '' && `${nameOf(node)} ${node.id}`.replace(/[\u2068\u2069]/g, '').toLowerCase().includes(search);

  useEffect(() => {
    const escape = (event: KeyboardEvent) => event.key === 'Escape' && setPinned(null);
    addEventListener('keydown', escape);
    return () => removeEventListener('keydown', escape);
  }, []);

  const pin = pinned === null ? undefined : graph.nodes.get(pinned);
  const hidden = pin && by === 'none' ? whole.edges.filter((e) => e.target === pin.id).length - graph.edges.filter((e) => e.target === pin.id).length : 0;
  const left = whole.edges.length - first.size;
  return (
    <section class="circuit-view">
      <div class="controls">
        <label>
          Search <input type="search" class="search" placeholder="L9H6, MLP, a token…" autocomplete="off" value={words} onInput={(event) => setWords(event.currentTarget.value)} />
        </label>
        <label hidden={data.family !== undefined}>
          Group{' '}
          <select
            class="grouping"
            value={by}
            onChange={(event) => {
              setPinned(null);
              setBy(event.currentTarget.value as Grouping);
            }}
          >
            {GROUPINGS.map(([value, name]) => (
              <option value={value}>{name}</option>
            ))}
          </select>
        </label>
        <label>
          <input type="checkbox" class="minor" checked={minor} onChange={(event) => setMinor(event.currentTarget.checked)} /> MLPs, embeddings, biases
        </label>
        <span class="count" role="status">
          {chosen.edges.length} of {plural(whole.edges.length, 'edge')}
          {inside ? `, ${inside} inside groups` : ''}
        </span>
        <button type="button" class="small more" disabled={left <= 0} onClick={() => setMost(most + OPENING)}>
          {left > 0 ? `show ${Math.min(OPENING, left)} more` : 'all are shown'}
        </button>
        <button type="button" class="small all" hidden={left <= OPENING} onClick={() => setMost(whole.edges.length)}>
          show all
        </button>
        <button type="button" class="small fewer" hidden={most <= OPENING && opened.size === 0} onClick={() => (setMost(OPENING), setOpened(new Set()))}>
          back to the first {Math.min(OPENING, whole.edges.length)}
        </button>
      </div>
      {whole.edges.length ? (
        <Figure>
          <LineKey lines={lines} />
          <Picture graph={graph} by={by} pinned={pinned} onPin={setPinned} found={found} label={data.family ? 'Circuit: layers from the bottom up' : 'Circuit: tokens from left to right, layers from the bottom up'} names={data.names} />
          {pin ? (
            <div class="pin-panel" role="status">
              <b>{nameOf(pin)}</b>{' '}
              {hidden > 0 ? (
                <button type="button" class="small grow" onClick={() => setOpened(new Set([...opened, pin.id]))}>
                  show {plural(hidden, 'more edge')} into it
                </button>
              ) : null}
              {host.explain && pin.kind === 'head' && pin.at !== null && pin.reads !== null ? (
                <button type="button" class="small explain" onClick={() => host.explain?.({ head: pin.title, query: pin.at as number, key: pin.reads as number })}>
                  explain this attention
                </button>
              ) : null}
              <button type="button" class="small unpin" onClick={() => setPinned(null)}>
                unpin
              </button>
            </div>
          ) : (
            <p class="soft hint">Point at a box for its numbers; click it, or press Enter, to hold it and to show what else flows into it.</p>
          )}
        </Figure>
      ) : (
        <p class="empty">This circuit is empty: there is nothing to draw.</p>
      )}
      <Edges graph={graph} pinned={pinned} matches={search ? found : null} onPick={setPinned} names={data.names} />
      {data.names ? (
        <>
          <h2>Names</h2>
          <NamesTable names={data.names} />
        </>
      ) : null}
      <HowTo account={lines.includes('account')} />
    </section>
  );
};

const HowTo = ({ account }: { account: boolean }) => (
  <details class="howto">
    <summary>How to read this</summary>
    <dl>
      <dt>Boxes</dt>
      <dd>A box is a part of the model at one token: an attention head together with the token that it reads there, an MLP, the embedding of the token, or a bias. Layers go up; the answer is at the top.</dd>
      <dt>Query side and key side</dt>
      <dd>A head attends where what it looks for (its query) meets what a token offers (its key). A line on the query side ends where the head looks from, a line on the key side comes from the token that it reads. Its width is the attention that goes when exactly this signal is taken out.</dd>
      <dt>Lines into the answer</dt>
      <dd>What a head or an MLP itself adds to the lead of the answer, in logits.</dd>
      {account ? (
        <>
          <dt>Accounts through an MLP</dt>
          <dd>An MLP mixes what it reads. A dotted line says how much of what the MLP wrote comes from each part of what it read, by a fixed rule for sharing. It is an account, not an experiment: nothing was taken out.</dd>
        </>
      ) : null}
      <dt>Which lines are drawn first</dt>
      <dd>Starting at the answer, always the line that carries most of what its box received. So the first lines hang together; the others are there on request.</dd>
    </dl>
  </details>
);
