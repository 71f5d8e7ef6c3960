// Why here, and not there: the table of differences of two prompts, and what passes with signals exchanged say of it.
import { useEffect, useState } from 'preact/hooks';
import { explained } from '../kit/explained';
import { Shown } from '../kit/tokens';
import { number, signed } from '../numbers';
import { isolated, readable } from '../text';
import { Alert } from '../app/alert';
import type { Shared, Trouble } from '../app/app';
import { troubleOf } from '../app/app';
import type { Outcome, Word } from '../explanation/document';
import { alignPairs } from '../app/place';
import { Diff } from './diff';

interface Three {
  here: number;
  there: number;
}
interface Writer extends Three {
  writer: string;
  /** What a head read here and there. */
  reads: number | null;
  reads_there: number | null;
}
interface Row extends Writer {
  side: 'query' | 'key';
  count: number;
  patched: boolean;
  through: readonly Writer[];
}
interface OnePrompt {
  tokens: readonly string[];
  query: number;
  key: number;
  attention: number;
  row: readonly number[];
}
interface Patch {
  into: string;
  before: Outcome;
  after: Outcome;
  predicted: number;
  attention: Word;
  answer: Word;
}

/** As ``headwise explain --against --json`` gives it. */
interface DifferenceDocument {
  head: string;
  here: OnePrompt;
  there: OnePrompt;
  alignment: readonly (readonly [number, number])[];
  chosen_because: string;
  answer: { text: string; wrong: string; measured_by: 'log_probability' | 'lead' };
  log_odds: Three;
  place: Readonly<Record<'content' | 'place' | 'interaction', Three>>;
  what: readonly (Three & { channel: number | 'others'; count?: number; stable: boolean })[];
  who: readonly Row[];
  sides: Readonly<Record<'query' | 'key', { attention: number }>>;
  into: string;
  patch: Patch | null;
  back: Patch | null;
  sentence: string;
}

type Asked = Pick<Shared, 'server' | 'place' | 'go'> & { /** The prompts, by the server's names. */ ids: readonly [string, string] };

const useDifference = ({ server, place, ids: [prompt, other] }: Asked) => {
  const [found, setFound] = useState<DifferenceDocument | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const [running, setRunning] = useState(false);
  const { head, query, key, answer, wrong, draws, seed, align } = place;
  useEffect(() => {
    let wanted = true;
    setFound(null);
    setTrouble(null);
    setRunning(true);
    server
      .post<DifferenceDocument>('/api/difference', { tab: server.tab, prompt, other, head, query, key, answer, wrong, draws, seed, align: alignPairs(align) })
      .then((got) => wanted && setFound(got))
      .catch((error) => wanted && setTrouble(troubleOf(error)))
      .finally(() => wanted && setRunning(false));
    return () => {
      wanted = false;
    };
  }, [server, prompt, other, head, query, key, answer, wrong, draws, seed, align]);
  return { found, trouble, running };
};

/** Positions of both prompts in lines: those that stand for one another in one, what only one prompt has in between. */
export const aligned = (pairs: readonly (readonly [number, number])[], here: number, there: number): [number | null, number | null][] => {
  const to = new Map(pairs);
  const taken = new Set(to.values());
  const lines: [number | null, number | null][] = [];
  let told = 0;
  const upto = (end: number) => {
    for (; told < end; told++) if (!taken.has(told)) lines.push([null, told]);
  };
  for (let i = 0; i < here; i++) {
    const j = to.get(i) ?? null;
    if (j !== null) upto(j);
    lines.push([i, j]);
  }
  upto(there);
  return lines;
};

export const Difference = (props: Asked) => {
  const { place, go } = props;
  const { found, trouble, running } = useDifference(props);
  const [align, setAlign] = useState(place.align);
  return (
    <section class="difference">
      <h2>Why here, and not there?</h2>
      <form
        class="row-of-controls patch"
        onSubmit={(event) => {
          event.preventDefault();
          go({ align });
        }}
      >
        <label>
          tokens that stand for one another <input value={align} placeholder="found; correct them as 9=10, 13=15" onInput={(event) => setAlign(event.currentTarget.value)} />
        </label>
        <button type="submit" class="small">
          align
        </button>
        <span class="stage" role="status">
          {running ? 'comparing, and exchanging signals …' : ''}
        </span>
      </form>
      <Alert trouble={trouble} />
      {found ? <Found data={found} /> : null}
    </section>
  );
};

const Found = ({ data }: { data: DifferenceDocument }) => {
  const { here, there, head } = data;
  const token = (at: number | null, side: OnePrompt) => (at === null ? '–' : <Shown text={side.tokens[at] ?? '?'} most={16} />);
  const lines = aligned(data.alignment, here.tokens.length, there.tokens.length);
  return (
    <>
      <p class="sentence">{isolated(readable(data.sentence))}</p>
      <p class="soft">Chosen: {isolated(readable(data.chosen_because))}.</p>
      <div class="two">
        <Diff
          title={`${head}, from ${here.query} to ${here.key} here and from ${there.query} to ${there.key} there`}
          name="number"
          of=""
          lines={[['attention', here.attention, there.attention], ['log-odds', data.log_odds.here, data.log_odds.there], ...(['content', 'place', 'interaction'] as const).map((one) => [one, data.place[one].here, data.place[one].there] as const)]}
        />
        <Diff title="By channel of the head's QK form" name="channel" of="part" lines={data.what.map((one) => [one.channel === 'others' ? `${one.count} others` : one.stable ? `channel ${one.channel}` : 'changes with texts', one.here, one.there])} />
        {(['query', 'key'] as const).map((side) => (
          <Diff title={`Who wrote it: ${side} side. With the other prompt's whole side in, attention ${data.into} is ${number(data.sides[side].attention)}`} name="writer" of="part" lines={[...data.who.filter((row) => row.side === side).flatMap((row) => writerLines(row, data)), ['together', data.log_odds.here, data.log_odds.there]]} />
        ))}
      </div>
      <Patched data={data} />
      <Diff
        title={`What ${head} reads, from position ${here.query} here and ${there.query} there`}
        name="token"
        of="attention"
        lines={lines.map(([i, j]) => [
          <>
            {token(i, here)}
            {i !== null && j !== null && here.tokens[i] === there.tokens[j] ? null : <> / {token(j, there)}</>}
            <span class="at">{[i ?? '–', j ?? '–'].join(' = ')}</span>
          </>,
          i === null ? null : (here.row[i] ?? null),
          j === null ? null : (there.row[j] ?? null),
        ])}
      />
    </>
  );
};

/** A writer, and for an MLP what it had read. */
const writerLines = (row: Row, data: DifferenceDocument) => {
  const named = (one: Writer, rest: string) => {
    if (one.writer === 'others') return rest;
    const read = ([[one.reads, data.here], [one.reads_there, data.there]] as const).flatMap(([at, side]) => (at === null ? [] : [<Shown text={side.tokens[at] ?? '?'} most={14} />]));
    return (
      <>
        {one.writer}
        {read.length ? ' reading ' : null}
        {read[0]}
        {read.length > 1 ? <> / {read[1]}</> : null}
        {read.length === 1 ? (one.reads === null ? ' there alone' : ' here alone') : null}
      </>
    );
  };
  return [
    [<>{row.patched ? <b title="exchanged in the passes below">* </b> : null}{named(row, `${row.count} others`)}</>, row.here, row.there] as const,
    ...row.through.map((one) => [<span class="soft">had read: {named(one, 'all else')}</span>, one.here, one.there] as const),
  ];
};

const wordText = ({ said, value, p }: Word): string => (value === null ? 'cannot be said' : `${said === null ? '' : said ? 'yes, ' : 'no, '}${Math.round(100 * value)} %${p === null ? '' : ` (p ${number(p)})`}`);

/** One prompt with what the marked writers wrote in the other one, and the way back. */
const Patched = ({ data: { patch, back, answer } }: { data: DifferenceDocument }) => {
  if (!patch || !back) return <p>No set of whole writers takes half of the difference along, or the log-odds hardly differ: nothing was exchanged.</p>;
  const measured = (one: Outcome) => (answer.measured_by === 'lead' ? signed(one.lead) : number(one.log_probability, 2));
  return (
    <figure>
      <figcaption>
        <b>With what the writers marked * wrote in the other prompt</b>: does the attention follow, and the answer <Shown text={answer.text} most={18} />, by its {answer.measured_by === 'lead' ? <>lead over <Shown text={answer.wrong} most={18} /></> : 'log-probability'}? p is against as much of something else.
      </figcaption>
      <div class="scroll" tabIndex={0} role="group" aria-label="passes with signals exchanged">
        <table class="beforeafter exchanged">
          <thead>
            <tr>
              <td />
              {['predicted attention', 'attention', answer.measured_by === 'lead' ? 'lead' : 'log-probability'].map((one) => (
                <th scope="col" class="n" {...explained(one)}>
                  {one}
                </th>
              ))}
              <th scope="col">attention follows</th>
              <th scope="col">answer follows</th>
            </tr>
          </thead>
          <tbody>
            {[patch, back].map((one) => (
              <>
                <tr>
                  <th scope="row">{one.into}</th>
                  <td class="n">–</td>
                  <td class="n">{number(one.before.attention)}</td>
                  <td class="n">{measured(one.before)}</td>
                  <td />
                  <td />
                </tr>
                <tr>
                  <th scope="row">{one.into}, with the other's signals</th>
                  <td class="n">{number(one.predicted)}</td>
                  <td class="n">{number(one.after.attention)}</td>
                  <td class="n">{measured(one.after)}</td>
                  <td>{wordText(one.attention)}</td>
                  <td>{wordText(one.answer)}</td>
                </tr>
              </>
            ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
};
