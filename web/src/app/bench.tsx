// The bench: what is ticked leaves the running model. Before, predicted, observed, and as much of something else.
import { useEffect, useState } from 'preact/hooks';
import { spoken } from '../explanation/names';
import type { DotRow } from '../kit/dots';
import { Dots, spreadText } from '../kit/dots';
import { Numbers } from '../kit/numbers';
import { Shown, Tok } from '../kit/tokens';
import { number, signed } from '../numbers';
import { isolated, plural, readable, short } from '../text';
import type { Shared, Trouble } from './app';
import { troubleOf } from './app';
import type { Edit } from './edits';
import { format, parse, planned } from './edits';
import type { EditSeen, PromptRead } from './wire';

const PAUSE = 250;
const CONTROLS: Record<string, string> = { channels: 'unused channels', writers: 'other writers', directions: 'random directions', heads: 'other heads' };

type BenchProps = Pick<Shared, 'server' | 'place' | 'go'> & { prompt: PromptRead; cell: { head: string; query: number; key: number } };

export const Bench = ({ server, place, go, prompt, cell }: BenchProps) => {
  const edits = parse(place.edits);
  const { seen, trouble, running } = useEffectOf({ server, place, go, prompt, cell });
  const [other, setOther] = useState('');
  const [open, setOpen] = useState(false);
  // The first change opens it; whoever closes it then wants it closed.
  useEffect(() => setOpen(edits.length > 0), [edits.length > 0]);
  const change = (next: readonly Edit[]) => go({ edits: format(next) });
  const add = (one: Edit) => change([...edits, one]);
  const has = (kind: Edit['kind']) => edits.some((one) => one.kind === kind);
  return (
    <details class="bench" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        Bench{edits.length ? `: ${plural(edits.length, 'change')}` : ''}
        {seen && edits.length ? `, ${seen.measured_by === 'lead' ? 'lead' : 'log-probability'} of the answer ${signed(seen.change)}` : ''}
        {running ? ' …' : ''}
      </summary>
      <p class="soft">Tick writers in the table, or change the head itself; the running model is changed at once, and as much of something else is changed beside it.</p>
      <div class="row-of-controls">
        <button type="button" class="small" disabled={has('silence')} onClick={() => add({ kind: 'silence', head: cell.head, position: cell.query })}>
          silence {cell.head} here
        </button>
        <button type="button" class="small" onClick={() => add({ kind: 'silence', head: cell.head, position: null })}>
          silence it everywhere
        </button>
        <button type="button" class="small" disabled={has('cut')} onClick={() => add({ kind: 'cut' })}>
          cut this cell
        </button>
        <form
          class="patch"
          onSubmit={(event) => {
            event.preventDefault();
            if (other.trim()) add({ kind: 'patch', head: cell.head, position: cell.query, text: other });
          }}
        >
          <label>
            patch {cell.head} from <input value={other} placeholder="another prompt of as many tokens" onInput={(event) => setOther(event.currentTarget.value)} />
          </label>
          <button type="submit" class="small" disabled={!other.trim()}>
            patch
          </button>
        </form>
      </div>
      {edits.length ? (
        <ul class="edit-list" aria-label="What is changed">
          {edits.map((one, i) => (
            <li>
              <span>
                <Words edit={one} />
              </span>
              <button type="button" class="small" aria-label={`Put back change ${i + 1}`} onClick={() => change(edits.filter((_, j) => j !== i))}>
                put back
              </button>
            </li>
          ))}
        </ul>
      ) : null}
      {edits.length ? (
        <div class="row-of-controls">
          <button type="button" class="small put-back" onClick={() => change([])}>
            put everything back
          </button>
          <span class="soft" role="status">
            {running ? 'running the changed model …' : ''}
          </span>
        </div>
      ) : null}
      {trouble ? (
        <p class="note" role="alert">
          {trouble.error}
        </p>
      ) : null}
      {seen && edits.length ? <Effect seen={seen} /> : null}
    </details>
  );
};

const Words = ({ edit }: { edit: Edit }) => {
  if (edit.kind === 'cut') return <>this attention is set to zero, and shared out among the other tokens</>;
  if (edit.kind === 'silence')
    return (
      <>
        {edit.head} writes nothing {edit.position === null ? 'anywhere' : <>at <Tok at={edit.position} most={16} /></>}
      </>
    );
  if (edit.kind === 'patch')
    return (
      <>
        {edit.head} at <Tok at={edit.position} most={16} /> writes what it writes there in <q>{isolated(short(readable(edit.text), 60))}</q>
      </>
    );
  return (
    <>
      without {spoken(edit.writer)}
      {edit.reads === null ? null : (
        <>
          {' '}
          reading <Tok at={edit.reads} most={16} />
        </>
      )}{' '}
      <span class={edit.side}>on the {edit.side} side</span>
    </>
  );
};

/** The effect of what the address says, asked for once it has rested for a moment. */
export const useEffectOf = ({ server, place, prompt, cell }: BenchProps): { seen: EditSeen | null; trouble: Trouble | null; running: boolean } => {
  const [seen, setSeen] = useState<EditSeen | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const [running, setRunning] = useState(false);
  const key = JSON.stringify([prompt.id, cell, place.answer, place.wrong, place.draws, place.seed, place.edits]);
  useEffect(() => {
    const edits = parse(place.edits);
    setTrouble(null);
    if (!edits.length) return setSeen(null);
    let wanted = true;
    const run = async () => {
      const ids = new Map<string, string>();
      for (const one of edits) if (one.kind === 'patch' && !ids.has(one.text)) ids.set(one.text, (await server.post<PromptRead>('/api/prompts', { tab: server.tab, text: one.text, chat: place.chat })).id);
      const { answer, wrong, draws, seed } = place;
      return server.post<EditSeen>('/api/edit', { tab: server.tab, prompt: prompt.id, ...cell, answer, wrong, draws, seed, edits: planned(edits, ids) });
    };
    const wait = setTimeout(() => {
      setRunning(true);
      run()
        .then((got) => wanted && setSeen(got))
        .catch((error) => {
          if (!wanted) return;
          setSeen(null);
          setTrouble(troubleOf(error));
        })
        .finally(() => wanted && setRunning(false));
    }, PAUSE);
    return () => {
      wanted = false;
      setRunning(false);
      clearTimeout(wait);
    };
  }, [server, key]);
  return { seen, trouble, running };
};

/** Below this change nothing is said to happen to the answer. */
const LITTLE = 0.1;
const said = (seen: EditSeen): string => {
  if (Math.abs(seen.change) < LITTLE) return 'hardly changes';
  if (seen.more_than_chance === null) return 'changes, and there is nothing to compare that with';
  return seen.more_than_chance ? 'changes by more than chance' : 'changes by no more than chance';
};

const Effect = ({ seen }: { seen: EditSeen }) => {
  const { before, after, predicted, controls, change } = seen;
  const name = (one: string) => CONTROLS[one] ?? one;
  const attention: DotRow[] = [
    { name: 'as it is', dot: before.attention, text: number(before.attention) },
    { name: 'changed', dot: after.attention, ring: predicted ?? undefined, from: before.attention, text: number(after.attention) },
    ...controls.map((one) => ({ name: name(one.name), spread: one.attention, text: spreadText(one.attention, 2) })),
  ];
  const values = [change, ...controls.flatMap((one) => [one.change.low, one.change.high])];
  const digits = Math.max(...values.map(Math.abs)) < 0.1 ? 4 : 2;
  const answer: DotRow[] = [
    { name: 'changed', dot: change, from: 0, text: signed(change, digits) },
    ...controls.map((one) => ({ name: name(one.name), spread: one.change, text: spreadText(one.change, digits, true) })),
  ];
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const pad = 0.06 * (high - low || 1);
  const by = seen.measured_by === 'lead' ? 'lead' : 'log-probability';
  return (
    <figure class="effect">
      <figcaption>
        <b class="verdict-line">
          The answer {said(seen)}: {by} {signed(change)}.
        </b>{' '}
        ● seen in the changed model, <span class="ringmark">○</span> {predicted === null ? 'not predicted here: the change reaches this cell through the whole model' : 'predicted by the table alone'}. Grey: as much of something else.
      </figcaption>
      <div class="two">
        <Dots title="Attention of this cell" rows={attention} low={0} high={1} />
        <Dots title={`Change of the ${by} of the answer`} rows={answer} low={low - (low < 0 ? pad : 0)} high={high + pad} />
      </div>
      <table class="beforeafter top-answers">
        <thead>
          <tr>
            <th scope="col">next token</th>
            <th scope="col" class="n">
              as it is
            </th>
            <th scope="col" class="n">
              changed
            </th>
          </tr>
        </thead>
        <tbody>
          {seen.top.slice(0, 6).map((one) => (
            <tr>
              <th scope="row">
                <Shown text={one.token} most={20} />
              </th>
              <td class="n">{number(one.before)}</td>
              <td class="n">{number(one.after)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <ul class="soft controls-text">
        {controls.map((one) => (
          <li>
            <b>{name(one.name)}</b>: {one.text}; p = {one.attention_p === null ? '' : `${number(one.attention_p)} for the attention, `}
            {number(one.p)} for the answer (in {plural(one.tried, 'changed run')})
          </li>
        ))}
      </ul>
      <Numbers
        columns={['model', 'predicted attention', 'attention', 'probability', 'lead', 'log-probability']}
        rows={[
          ['as it is', null, before.attention, before.probability, before.lead, before.log_probability],
          ['changed', predicted, after.attention, after.probability, after.lead, after.log_probability],
        ]}
      />
    </figure>
  );
};
