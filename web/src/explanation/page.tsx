// The page of an explanation, in the order in which a person asks.
import { useMemo, useState } from 'preact/hooks';
import type { Cell, Host } from '../host';
import type { Values } from '../kit/explained';
import { Figure } from '../kit/figure';
import { explained } from '../kit/explained';
import { Named, NamesTable } from '../kit/names';
import { Numbers } from '../kit/numbers';
import { Page } from '../kit/page';
import { Tok, Tokens } from '../kit/tokens';
import { number, signed } from '../numbers';
import { isolated, plural, readable, visible } from '../text';
import { Around } from './around';
import { attentionOf } from './attention';
import { Consequence } from './consequence';
import type { ExplanationDocument, GrowingDocument } from './document';
import { isWhole } from './document';
import { Features } from './features';
import { HowTo } from './howto';
import { Pattern } from './pattern';
import { Place } from './place';
import { Prompt } from './prompt';
import { Proof, words } from './proof';
import { Rivals } from './rivals';
import { Prose } from './sentence';
import { WhatAndWho } from './table';

export const ExplanationPage = ({ data, host }: { data: ExplanationDocument; host: Host }) => (
  <Page kind="explanation" glossary={data.glossary}>
    <main>
      <ExplanationView data={data} host={host} />
    </main>
  </Page>
);

/** All parts of an explanation that are known: also for an app, which has its own frame, learns one after another, and
 * has the pattern beside the account where there is room. */
export const ExplanationView = ({ data, host, beside = false }: { data: GrowingDocument; host: Host; beside?: boolean }) => {
  const attention = useMemo(() => attentionOf(data), [data]);
  const [row, setRow] = useState(data.query);
  // What does not depend on the row shown is not drawn again with it.
  const [head, account] = useMemo(() => [<Head data={data} host={host} />, <Account data={data} host={host} />], [data, host]);
  const picture = attention ? <Pattern data={data} attention={attention} row={row} onRow={setRow} host={host} /> : null;
  return (
    <Tokens.Provider value={data.tokens}>
      <div class={beside ? 'side-by-side' : undefined}>
        {head}
        {beside ? <div class="at-left">{picture ?? <Pending title="The whole head" />}</div> : null}
        <div class="at-right">
          <Prompt data={data} attention={attention} row={row} onRow={setRow} host={host} />
          {account}
          {beside ? null : picture}
          {isWhole(data) ? <HowTo /> : null}
        </div>
      </div>
    </Tokens.Provider>
  );
};

/** The parts of the account, as far as they are known, with an empty place for the next one. */
const Account = ({ data, host }: { data: GrowingDocument; host: Host }) => {
  // Each part looks only at what its condition names.
  const known = data as ExplanationDocument;
  const { log_odds, place, cause, consequence, proof, verdict } = data;
  return (
    <>
      {place && log_odds ? log_odds.keys > 1 ? <Place data={known} /> : null : <Pending title="Place or content?" />}
      {cause ? <WhatAndWho data={known} host={host} /> : <Pending title="What and who" />}
      {data.names ? (
        <section class="names">
          <h2>Names</h2>
          <Figure>
            <NamesTable names={data.names} />
          </Figure>
        </section>
      ) : null}
      {consequence && proof ? <Consequence data={known} /> : <Pending title="Consequence" />}
      {proof && verdict ? <Proof data={known} /> : <Pending title="Proof" />}
      {isWhole(data) ? (
        <>
          <Around data={data} />
          <Features data={data} host={host} />
          <Rivals data={data} />
        </>
      ) : null}
    </>
  );
};

const Pending = ({ title }: { title: string }) => (
  <section class="pending" aria-busy="true">
    <h2>{title}</h2>
    <div class="blank" />
  </section>
);

const Head = ({ data, host }: { data: GrowingDocument; host: Host }) => {
  const { answer, log_odds, relative } = data;
  const facts: [name: string, value: string, of?: string, values?: Values][] = [
    ['attention', number(data.attention), 'attention', { v: data.attention }],
    [log_odds ? `log-odds above an even row of ${log_odds.keys}` : 'log-odds above an even row', signed(log_odds?.total), 'log-odds', { A: data.attention, n: log_odds?.keys, v: log_odds?.total, error: log_odds?.error }],
    ...(data.role ? [['role on random tokens', data.role] as [string, string]] : []),
    ['answer', isolated(visible(answer.text))],
    ['its probability', number(answer.probability), 'probability', { v: answer.probability }],
    [`lead over ${isolated(visible(answer.wrong))}`, signed(answer.lead), 'lead', { v: answer.lead }],
  ];
  return (
    <header>
      <p class="kicker">
        headwise · {isolated(readable(data.model))} · {plural(data.tokens.length, 'token')}
        {data.seconds === undefined ? '' : ` · ${data.seconds.toFixed(1)} s`}
      </p>
      <h1>
        Why does {data.head} at <Tok at={data.query} /> read <Tok at={data.key} />?
      </h1>
      {data.notices.map((line) => (
        <p class="note">
          <Prose text={line} quoted={data.quoted} />
        </p>
      ))}
      {isWhole(data) ? (
        <>
          <p class="lead sentence">
            <Prose text={data.sentence} quoted={data.quoted} />
          </p>
          <p class="chips">
            {words(data).map((one) => (
              <span class={`chip ${one.state}`} title={one.says}>
                {one.state === 'unknown' ? `${one.word}: not measured` : one.word}
              </span>
            ))}
          </p>
        </>
      ) : (
        <>
          <p class="lead sentence soft">…</p>
          <p class="chips">
            <span class="chip unknown">not yet proved</span>
          </p>
        </>
      )}
      {[`${data.head} sink`, data.head].map((signal) =>
        data.names?.signals[signal] ? (
          <p class="named">
            {signal}: <Named names={data.names} signal={signal} />
          </p>
        ) : null,
      )}
      <dl class="facts">
        {facts.map(([name, value, of, values]) => (
          <div>
            <dt>{name}</dt>
            <dd>{of ? <span {...explained(of, values)}>{value}</span> : value}</dd>
          </div>
        ))}
      </dl>
      <details class="chosen">
        <summary>How this question was chosen</summary>
        <p class="soft">
          Because <Prose text={data.chosen_because} quoted={data.quoted} />.
        </p>
        {data.runners_up.length ? <Numbers title="Next in the ranking" columns={['head', 'query', 'key', 'score']} rows={data.runners_up.map((one) => [<Explained cell={one} host={host} />, <Tok at={one.query} />, <Tok at={one.key} />, one.score])} /> : null}
        {relative ? (
        <p class="soft">
          Logit <span {...explained('logit', { v: data.logit })}>{number(data.logit, 2)}</span>, <span {...explained('relative logit', { v: relative.logit })}>{signed(relative.logit)}</span> above the mean of the other tokens; <span {...explained('channels needed')}>{plural(relative.channels_needed, 'channel')}</span> rebuild 90 % of that. Basis: {readable(data.basis.kind)}, in the {data.basis.frame === 'query' ? 'frame of the query' : 'absolute frame'}.
        </p>
        ) : null}
      </details>
    </header>
  );
};

const Explained = ({ cell, host }: { cell: Cell; host: Host }) =>
  host.explain ? (
    <button type="button" class="small explain" onClick={() => host.explain?.({ head: cell.head, query: cell.query, key: cell.key })}>
      {cell.head}
    </button>
  ) : (
    <>{cell.head}</>
  );
