// The page of an explanation, in the order in which a person asks.
import { useMemo, useState } from 'preact/hooks';
import type { Host } from '../host';
import { Numbers } from '../kit/numbers';
import { Page } from '../kit/page';
import { Tok, Tokens } from '../kit/tokens';
import { number, signed } from '../numbers';
import { isolated, plural, readable, visible } from '../text';
import { Around } from './around';
import { attentionOf } from './attention';
import { Consequence } from './consequence';
import type { ExplanationDocument } from './document';
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
  <Page kind="explanation">
    <main>
      <ExplanationView data={data} host={host} />
    </main>
  </Page>
);

/** All parts of an explanation: also for an app that has its own frame. */
export const ExplanationView = ({ data, host }: { data: ExplanationDocument; host: Host }) => {
  const attention = useMemo(() => attentionOf(data), [data]);
  const [row, setRow] = useState(data.query);
  // What does not depend on the row shown is not drawn again with it.
  const [head, account] = useMemo(
    () => [
      <Head data={data} />,
      <>
        {data.log_odds.keys > 1 ? <Place data={data} /> : null}
        <WhatAndWho data={data} host={host} />
        <Consequence data={data} />
        <Proof data={data} />
        <Around data={data} />
        <Features data={data} />
        <Rivals data={data} />
      </>,
    ],
    [data, host],
  );
  return (
    <Tokens.Provider value={data.tokens}>
      {head}
      <Prompt data={data} attention={attention} row={row} onRow={setRow} host={host} />
      {account}
      {attention ? <Pattern data={data} attention={attention} row={row} onRow={setRow} /> : null}
      <HowTo />
    </Tokens.Provider>
  );
};

const Head = ({ data }: { data: ExplanationDocument }) => {
  const { answer } = data;
  const facts: [string, string][] = [
    ['attention', number(data.attention)],
    [`log-odds above an even row of ${data.log_odds.keys}`, signed(data.log_odds.total)],
    ...(data.role === null ? [] : [['role on random tokens', data.role] as [string, string]]),
    ['answer', isolated(visible(answer.text))],
    ['its probability', number(answer.probability)],
    [`lead over ${isolated(visible(answer.wrong))}`, signed(answer.lead)],
  ];
  return (
    <header>
      <p class="kicker">
        headwise · {isolated(readable(data.model))} · {plural(data.tokens.length, 'token')} · {data.seconds.toFixed(1)} s
      </p>
      <h1>
        Why does {data.head} at <Tok at={data.query} /> read <Tok at={data.key} />?
      </h1>
      {data.notices.map((line) => (
        <p class="note">
          <Prose text={line} quoted={data.quoted} />
        </p>
      ))}
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
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <details class="chosen">
        <summary>How this question was chosen</summary>
        <p class="soft">
          Because <Prose text={data.chosen_because} quoted={data.quoted} />.
        </p>
        {data.runners_up.length ? <Numbers title="Next in the ranking" columns={['head', 'query', 'key', 'score']} rows={data.runners_up.map((one) => [one.head, <Tok at={one.query} />, <Tok at={one.key} />, one.score])} /> : null}
        <p class="soft">
          Logit {number(data.logit, 2)}, {signed(data.relative.logit)} above the mean of the other tokens; {plural(data.relative.channels_needed, 'channel')} rebuild 90 % of that. Basis: {readable(data.basis.kind)}, in the {data.basis.frame === 'query' ? 'frame of the query' : 'absolute frame'}.
        </p>
      </details>
    </header>
  );
};
