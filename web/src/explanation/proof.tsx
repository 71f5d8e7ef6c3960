// The proof: the cause taken out of the running model, beside random removals that had the same chance.
import type { DotRow } from '../kit/dots';
import { Dots, spreadText } from '../kit/dots';
import { Numbers } from '../kit/numbers';
import { Tok } from '../kit/tokens';
import { number, signed } from '../numbers';
import { isolated, listed, plural, readable, short, visible } from '../text';
import type { ExplanationDocument, Word } from './document';
import { spoken } from './names';

const CONTROLS: Record<string, string> = { channels: 'unused channels', writers: 'other writers', directions: 'random directions' };

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
            {plural(cause[proof.side].writers.length, 'writer')} of the cause ({listed(cause[proof.side].writers.slice(0, 6).map((one) => spoken(one.writer)))}
            {cause[proof.side].writers.length > 6 ? ', …' : ''}), taken out of the {proof.side} side in the running model.
          </p>
          <Verdict data={data} />
          <Panels data={data} />
        </>
      )}
      {data.transfer ? (
        <p class="transfer">
          The same writers taken out in another prompt, <q>{readable(data.transfer.prompt)}</q>: attention {number(data.transfer.before)} becomes {number(data.transfer.after)}.
        </p>
      ) : null}
    </section>
  );
};

interface Said {
  word: string;
  /** Redundancy is neither good nor bad for the explanation, but a reader should see it. */
  state: 'good' | 'mixed' | 'bad' | 'unknown';
  says: string;
}

const pText = (p: number | null): string => (p === null ? '' : ` (p = ${number(p)})`);

export const words = (data: ExplanationDocument): Said[] => {
  const { specific, redundant, matters } = data.verdict;
  type Way = [state: Said['state'], word: string, says: string];
  const said = (measured: Word, yes: Way, no: Way): Said => {
    if (measured.said === null || measured.value === null) return { word: yes[1], state: 'unknown', says: 'not measured' };
    const [state, word, says] = measured.said ? yes : no;
    return { state, word, says };
  };
  const share = (v: number | null) => `${Math.round(100 * (v ?? 0))} %`;
  const drop = `takes ${number(specific.value, 2)} of the attention`;
  const change = `log-probability of the answer ${signed(matters.value)}`;
  return [
    said(specific, ['good', 'specific', `${drop}; matched random removals rarely do as much${pText(specific.p)}`], ['bad', 'not specific', `${drop}; matched random removals often do as much${pText(specific.p)}`]),
    said(redundant, ['mixed', 'redundant', `the next-best writers alone take ${share(redundant.value)} of that`], ['good', 'not redundant', `the next-best writers alone take only ${share(redundant.value)} of that`]),
    said(matters, ['good', 'matters', `${change}, more than random removals do${pText(matters.p)}`], ['bad', 'does not matter', `${change}: too little, or no more than random removals do${pText(matters.p)}`]),
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
  const named = (name: string) => CONTROLS[name] ?? name;
  const attention: DotRow[] = [
    { name: 'as it is', dot: before.attention, text: number(before.attention) },
    { name: 'without the cause', dot: after.attention, ring: predicted ?? undefined, from: before.attention, text: number(after.attention) },
    ...(next ? [{ name: 'without next-best', dot: next.outcome.attention, ring: next.after, from: before.attention, text: number(next.outcome.attention) }] : []),
    ...controls.map((one) => ({ name: named(one.name), spread: one.attention, text: spreadText(one.attention, 2) })),
  ];
  const change = (outcome: { log_probability: number }) => outcome.log_probability - before.log_probability;
  const tested = controls.filter((one) => one.answer !== null);
  const answer: DotRow[] = [
    { name: 'without the cause', dot: change(after), from: 0, text: signed(change(after)) },
    ...(next ? [{ name: 'without next-best', dot: change(next.outcome), from: 0, text: signed(change(next.outcome)) }] : []),
    ...tested.map((one) => ({ name: named(one.name), spread: one.answer ?? undefined, text: one.answer ? spreadText(one.answer, 2, true) : '' })),
  ];
  const ends = answer.flatMap((row) => [row.dot ?? 0, row.spread?.low ?? 0, row.spread?.high ?? 0]);
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const pad = 0.06 * (high - low || 1);
  const title = `Change of the log-probability of ${isolated(short(visible(data.answer.text), 14))}`;
  return (
    <figure>
      <figcaption>
        ● seen in the edited model, <span class="ringmark">○</span> predicted by the table alone (they differ by {number(proof.error, 6)}). Grey: {controls.length ? `${controls[0]?.draws} random removals of each kind, matched in length` : 'no random removal could be drawn'}; the line below each is where 90 % of them are, the upright its mean.
      </figcaption>
      <div class="two">
        <Dots title="Attention of this cell" rows={attention} low={0} high={1} />
        <Dots title={title} rows={answer} low={low - (low < 0 ? pad : 0)} high={high + pad} />
      </div>
      <ul class="soft controls-text">
        {controls.map((one) => (
          <li>
            <b>{named(one.name)}</b>: {one.text}; p = {number(one.p)} for the attention{one.answer ? `, ${number(one.answer.p)} for the answer (in ${plural(one.answer.draws, 'edited run')})` : ''}
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
    </figure>
  );
};
