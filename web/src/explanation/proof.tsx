// The proof: the cause taken out of the running model, beside random removals that had the same chance.
import { Figure } from '../kit/figure';
import { Caption } from '../kit/caption';
import { explained } from '../kit/explained';
import type { DotRow } from '../kit/dots';
import { Dots, spreadText } from '../kit/dots';
import { Numbers } from '../kit/numbers';
import { Tok } from '../kit/tokens';
import { number, share, signed } from '../numbers';
import { isolated, listed, plural, readable, short, visible } from '../text';
import type { ExplanationDocument, Outcome, Transfer, Word, Writer } from './document';
import { CONTROLS, spoken } from './names';

export const Proof = ({ data }: { data: ExplanationDocument }) => {
  const { proof, cause } = data;
  return (
    <section class="proof">
      <h2>Proof</h2>
      {proof.side === null || proof.after === null ? (
        <>
          <p class="soft">No set of writers on one side takes this attention away, so there is nothing to take out and nothing is proved.</p>
          <Verdict data={data} />
        </>
      ) : (
        <>
          <p class="soft">
            The cause, {named(cause[proof.side].writers)}, taken out of the {proof.side} side in the running model.
          </p>
          <Verdict data={data} />
          <Panels data={data} />
        </>
      )}
      <Elsewhere data={data} />
    </section>
  );
};

/** The same writers taken out in other prompts. */
const Elsewhere = ({ data }: { data: ExplanationDocument }) => {
  if (!data.transfer?.length) return null;
  const token = (one: Transfer, at: number) => isolated(short(visible(one.tokens[at] ?? ''), 14));
  return (
    <div class="transfer">
      <h3>The same writers in other prompts</h3>
      <p class="soft"><Caption of="transfer" /></p>
      <ul>
        {data.transfer.map((one) => (
          <li>
            <q>{isolated(readable(short(one.tokens.join(''), 120)))}</q>: {data.head} at {token(one, one.query)} reads {token(one, one.key)} with {number(one.before.attention)}
            {one.after === null ? '; none of the writers is there.' : `, without the same ${plural(one.writers.length, 'writer')} with ${number(one.after.attention)}`}
            {one.holds.said === null ? '. Whether the cause transfers cannot be said.' : `: share ${number(one.holds.value, 2)}, p = ${number(one.holds.p)}. `}
            {one.holds.said === null ? null : <b>{one.holds.said ? 'It transfers.' : 'It does not transfer.'}</b>}
            {one.missing.length ? ` Left out, because nothing there is the token they read: ${named(one.missing)}.` : ''}
          </li>
        ))}
      </ul>
    </div>
  );
};

const NAMED = 6;
const named = (writers: readonly Writer[]): string => {
  const names = writers.map((one) => spoken(one.writer));
  return listed(names.length > NAMED ? [...names.slice(0, NAMED), `${names.length - NAMED} more`] : names);
};

interface Said {
  word: string;
  /** Redundancy is neither good nor bad for the explanation, but a reader should see it. */
  state: 'good' | 'mixed' | 'bad' | 'unknown';
  says: string;
}

/** Below this change of the answer's log-probability nothing is said to matter. */
const LITTLE = 0.1;

const pText = (p: number | null): string => (p === null ? '' : ` (p = ${number(p)})`);

export const words = (data: ExplanationDocument): Said[] => {
  const { specific, redundant, matters } = data.verdict;
  type Way = [state: Said['state'], word: string, says: string];
  const said = (measured: Word, yes: Way, no: Way): Said => {
    if (measured.said === null || measured.value === null) return { word: yes[1], state: 'unknown', says: 'not measured' };
    const [state, word, says] = measured.said ? yes : no;
    return { state, word, says };
  };
  const percent = (v: number | null) => `${Math.round(100 * (v ?? 0))} %`;
  const drop = `takes ${share(specific.value)} of the attention`;
  const others = data.proof.next?.writers.length === 1 ? 'the next-best writer alone takes' : 'the next-best writers alone take';
  const change = `${data.answer.measured_by === 'lead' ? 'lead' : 'log-probability'} of the answer ${signed(matters.value)}`;
  // A large change that random removals also make is no sign that the cause does not matter.
  const little = Math.abs(matters.value ?? 0) < LITTLE;
  const none: Way = ['bad', little ? 'does not matter' : 'not shown to matter', `${change}: ${little ? 'too little' : 'no more than random removals do'}${pText(matters.p)}`];
  return [
    said(specific, ['good', 'specific', `${drop}; matched random removals rarely do as much${pText(specific.p)}`], ['bad', 'not specific', `${drop}; matched random removals do as much too often${pText(specific.p)}`]),
    said(redundant, ['mixed', 'redundant', `${others} ${percent(redundant.value)} of that`], ['good', 'not redundant', `${others} only ${percent(redundant.value)} of that`]),
    said(matters, ['good', 'matters', `${change}, more than random removals do${pText(matters.p)}`], none),
  ];
};

export const Verdict = ({ data }: { data: ExplanationDocument }) => (
  <ul class="verdict">
    {words(data).map((one) => (
      <li class={one.state}>
        <b>{one.state === 'unknown' ? `${one.word}?` : one.word}</b> <span>{one.says}</span>
      </li>
    ))}
  </ul>
);

const Panels = ({ data }: { data: ExplanationDocument }) => {
  const { proof, controls } = data;
  const { before, after, predicted, next } = proof;
  if (!after) return null;
  const control = (name: string) => CONTROLS[name] ?? name;
  const attention: DotRow[] = [
    { name: 'as it is', dot: before.attention, text: number(before.attention) },
    { name: 'without the cause', dot: after.attention, ring: predicted ?? undefined, from: before.attention, text: number(after.attention) },
    ...(next ? [{ name: 'without next-best', dot: next.outcome.attention, ring: next.after, from: before.attention, text: number(next.outcome.attention) }] : []),
    ...controls.map((one) => ({ name: control(one.name), spread: one.attention, text: spreadText(one.attention, 2) })),
  ];
  // The yardstick of the controls: the lead where a wrong answer was given, else the log-probability.
  const by = data.answer.measured_by;
  const change = (outcome: Outcome) => outcome[by] - before[by];
  const tested = controls.flatMap((one) => (one.answer === null ? [] : [{ name: one.name, spread: one.answer }]));
  const values = [change(after), ...(next ? [change(next.outcome)] : []), ...tested.flatMap((one) => [one.spread.low, one.spread.high])];
  const digits = Math.max(...values.map(Math.abs)) < 0.1 ? 4 : 2;
  const answer: DotRow[] = [
    { name: 'without the cause', dot: change(after), from: 0, text: signed(change(after), digits) },
    ...(next ? [{ name: 'without next-best', dot: change(next.outcome), from: 0, text: signed(change(next.outcome), digits) }] : []),
    ...tested.map((one) => ({ name: control(one.name), spread: one.spread, text: spreadText(one.spread, digits, true) })),
  ];
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const pad = 0.06 * (high - low || 1);
  const [right, wrong] = [data.answer.text, data.answer.wrong].map((text) => isolated(short(visible(text), 14)));
  const title = by === 'lead' ? `Change of the lead of ${right} over ${wrong}` : `Change of the log-probability of ${right}`;
  return (
    <Figure>
      <figcaption>
        ● seen in the edited model, <span class="ringmark">○</span> predicted by the table alone (they differ by <span {...explained('error', { v: proof.error })}>{number(proof.error, 6)}</span>). Grey: {controls.length ? `${controls[0]?.draws} random removals of each kind, matched in length` : 'no random removal could be drawn'}; the line below each is where 90 % of them are, the upright its mean.
      </figcaption>
      <div class="two">
        <Dots title="Attention of this cell" rows={attention} low={0} high={1} of="attention" />
        <Dots title={title} rows={answer} low={low - (low < 0 ? pad : 0)} high={high + pad} of="change" />
      </div>
      <ul class="soft controls-text">
        {controls.map((one) => (
          <li>
            <b>{control(one.name)}</b>: {one.text}; p = <span {...explained('p', { m: one.draws, v: one.p })}>{number(one.p)}</span> for the attention{one.answer ? `, ${number(one.answer.p)} for the answer (in ${plural(one.answer.draws, 'edited run')})` : ''}
          </li>
        ))}
        {next ? (
          <li>
            <b>next-best</b>: the strongest other writers, as many as the cause has:{' '}
            {next.writers.map((one, i) => (
              <>
                {i ? ', ' : ''}
                {spoken(one.writer)}
                {one.reads === null ? null : (
                  <>
                    {' '}
                    reading <Tok at={one.reads} most={14} />
                  </>
                )}
              </>
            ))}
          </li>
        ) : null}
      </ul>
      <Numbers
        columns={['model', 'predicted attention', 'attention', 'probability', 'lead', 'log-probability']}
        rows={[
          ['as it is', null, before.attention, before.probability, before.lead, before.log_probability],
          ['without the cause', predicted, after.attention, after.probability, after.lead, after.log_probability],
          ...(next ? [['without the next-best', next.after, next.outcome.attention, next.outcome.probability, next.outcome.lead, next.outcome.log_probability]] : []),
        ]}
      />
    </Figure>
  );
};
