// The bench: what is ticked leaves the running model. Before, predicted, observed, and as much of something else.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { CONTROLS, WriterName } from '../explanation/names';
import type { Cell } from '../host';
import type { DotRow } from '../kit/dots';
import { Figure } from '../kit/figure';
import { Dots, spreadText } from '../kit/dots';
import { Caption } from '../kit/caption';
import { explained } from '../kit/explained';
import { Numbers } from '../kit/numbers';
import { Shown, Tok } from '../kit/tokens';
import { number, signed } from '../numbers';
import { isolated, plural, readable, short, visible } from '../text';
import { Alert } from '../app/alert';
import type { Shared, Trouble } from '../app/app';
import { troubleOf } from '../app/app';
import type { Edit } from '../app/edits';
import { edit, format, nameOf, parse, planned } from '../app/edits';
import type { EditSeen, PromptRead } from '../app/wire';

const PAUSE = 250;
const KINDS: Record<string, string> = { ...CONTROLS, subspaces: 'random subspaces', heads: 'other heads', edges: 'other channels' };

type BenchProps = Pick<Shared, 'server' | 'place' | 'go'> & { prompt: PromptRead; cell: Cell; /** Named features of the head. */ known?: readonly string[] };

export const Bench = ({ server, place, go, prompt, cell, known = [] }: BenchProps) => {
  const edits = parse(place.edits);
  const { seen, trouble, running, again } = useEffectOf({ server, place, go, prompt, cell });
  const [open, setOpen] = useState(false);
  // The first change opens it; whoever closes it then wants it closed.
  useEffect(() => setOpen(edits.length > 0), [edits.length > 0]);
  const change = (next: readonly Edit[]) => go({ edits: format(next) });
  const add = (one: Edit) => change([...edits.filter((of) => nameOf(of) !== nameOf(one)), one]);
  const { head, query } = cell;
  return (
    <details class="bench" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        Bench{edits.length ? `: ${plural(edits.length, 'change')}` : ''}
        {seen && edits.length ? `, ${seen.measured_by === 'lead' ? 'lead' : 'log-probability'} of the answer ${signed(seen.change)}` : ''}
        {running ? ' …' : ''}
      </summary>
      <p class="soft"><Caption of="bench" /></p>
      <div class="row-of-controls">
        <button type="button" class="small" onClick={() => add(edit({ kind: 'si', writer: head, reads: query }))}>
          silence {head} here
        </button>
        <button type="button" class="small" onClick={() => add(edit({ kind: 'si', writer: head }))}>
          silence it everywhere
        </button>
        <button type="button" class="small" onClick={() => add(edit({ kind: 'cut' }))}>
          cut this cell
        </button>
        <Swap prompt={prompt} cell={cell} known={known} add={add} />
        <Patch head={head} onPatch={(name) => add(edit({ kind: 'pa', writer: head, reads: query, name }))} />
      </div>
      {edits.length ? (
        <>
          <ul class="edit-list" aria-label="What is changed">
            {edits.map((one, i) => (
              <li key={nameOf(one)}>
                <span>
                  <Words edit={one} />
                </span>
                <Dose of={`change ${i + 1}`} least={ONE_WAY.includes(one.kind) ? 0 : -1} value={one.dose} onDose={(dose) => change(edits.map((of) => (of === one ? { ...of, dose } : of)))} />
                {[-1, 1].map((by) =>
                  edits[i + by] ? (
                    <button type="button" class="small" aria-label={`Move change ${i + 1} ${by < 0 ? 'up' : 'down'}`} onClick={() => change(moved(edits, i, i + by))}>
                      {by < 0 ? '↑' : '↓'}
                    </button>
                  ) : null,
                )}
                <button type="button" class="small" aria-label={`Put back change ${i + 1}`} onClick={() => change(edits.filter((of) => of !== one))}>
                  put back
                </button>
              </li>
            ))}
          </ul>
          <div class="row-of-controls">
            <button type="button" class="small run-edits" onClick={again}>
              run again
            </button>
            <button type="button" class="small put-back" onClick={() => change([])}>
              put everything back
            </button>
            {edits.length > 1 ? <Dose of="all of it together" says="dose of all" least={0} value={place.dose} onDose={(dose) => go({ dose })} /> : null}
            <span class="soft" role="status">
              {running ? 'running the changed model …' : ''}
            </span>
          </div>
        </>
      ) : null}
      <Alert trouble={trouble} />
      {seen && edits.length ? <Effect seen={seen} /> : null}
    </details>
  );
};

const moved = (edits: readonly Edit[], from: number, to: number): Edit[] => edits.map((one, i) => (i === from ? edits[to] : i === to ? edits[from] : one) as Edit);

/** What cannot be done the other way round: it has no dose below nothing. */
const ONE_WAY: readonly Edit['kind'][] = ['sw', 'pa', 'cut'];

const Dose = ({ of, says = 'dose', least, value, onDose }: { of: string; says?: string; least: number; value: number; onDose: (dose: number) => void }) => (
  <label class="dose" title={`1: all of it${least < 0 ? '; −1: as much again is added' : ''}`}>
    {says} <input type="range" min={least} max={1} step={0.25} value={value} aria-label={`Dose of ${of}`} onChange={(event) => onDose(Number(event.currentTarget.value))} /> <span class="n">{number(value, 2)}</span>
  </label>
);

/** The key of this cell exchanged with that of another token. */
const Swap = ({ prompt, cell, known, add }: Required<Pick<BenchProps, 'prompt' | 'cell' | 'known'>> & { add: (one: Edit) => void }) => {
  const [other, setOther] = useState('');
  const [name, setName] = useState('');
  return (
    <span class="swap">
      <label>
        swap its key with{' '}
        <select value={other} onChange={(event) => setOther(event.currentTarget.value)}>
          <option value="">another token</option>
          {prompt.tokens.slice(0, cell.query + 1).map((token, i) => (i === cell.key ? null : <option value={i}>{`${isolated(short(visible(token), 16))} ${i}`}</option>))}
        </select>
      </label>
      {known.length ? (
        <label>
          in{' '}
          <select value={name} onChange={(event) => setName(event.currentTarget.value)}>
            <option value="">the whole key</option>
            {known.map((one) => (
              <option value={one}>{isolated(readable(one))}</option>
            ))}
          </select>
        </label>
      ) : null}
      <button type="button" class="small" disabled={!other} onClick={() => add(edit({ kind: 'sw', side: 'key', reads: Number(other), name }))}>
        swap
      </button>
    </span>
  );
};

const Patch = ({ head, onPatch }: { head: string; onPatch: (text: string) => void }) => {
  const [other, setOther] = useState('');
  return (
    <form
      class="patch"
      onSubmit={(event) => {
        event.preventDefault();
        if (other.trim()) onPatch(other);
      }}
    >
      <label>
        patch {head} from <input value={other} placeholder="another prompt of as many tokens" onInput={(event) => setOther(event.currentTarget.value)} />
      </label>
      <button type="submit" class="small" disabled={!other.trim()}>
        patch
      </button>
    </form>
  );
};

const channelsOf = (channels: readonly number[]): string => (channels.length > 4 ? `${channels.length} channels` : `channel${channels.length > 1 ? 's' : ''} ${channels.join(', ')}`);

const Words = ({ edit }: { edit: Edit }) => {
  const { kind, writer, reads, channels, name, target, global } = edit;
  const token = reads === null ? null : <Tok at={reads} most={16} />;
  const side = <span class={edit.side}>on the {edit.side} side</span>;
  const named = <q>{isolated(short(readable(name), 60))}</q>;
  if (kind === 'cut') return <>this attention is taken away, and shared out among the other tokens</>;
  if (kind === 'si')
    return (
      <>
        {writer} writes nothing {token ? <>at {token}</> : 'anywhere'}
      </>
    );
  if (kind === 'pa')
    return (
      <>
        {writer} at {token} writes what it writes there in {named}
      </>
    );
  if (kind === 'sw')
    return (
      <>
        this key is swapped with that of {token}
        {name ? <> in the feature {named}</> : null}
      </>
    );
  if (kind === 'ft')
    return (
      <>
        without the feature {named} {side}
      </>
    );
  return (
    <>
      without {writer ? <WriterName writer={writer} reads={reads} /> : `${channelsOf(channels)}, whoever wrote there,`}
      {writer && channels.length ? ` in ${channelsOf(channels)}` : ''} {side}
      {target ? ` of ${target.head} from ${target.query} to ${target.key}${global ? ', for all above it' : ''}` : ''}
    </>
  );
};

/** The effect of what the address says, asked for once it has rested for a moment. */
export const useEffectOf = ({ server, place, prompt, cell }: BenchProps): { seen: EditSeen | null; trouble: Trouble | null; running: boolean; again: () => void } => {
  const [seen, setSeen] = useState<EditSeen | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const [running, setRunning] = useState(false);
  const [turn, setTurn] = useState(0);
  const ran = useRef(0);
  const key = JSON.stringify([prompt.id, cell, place.answer, place.wrong, place.draws, place.seed, place.edits, place.dose, place.features]);
  useEffect(() => {
    const edits = parse(place.edits);
    setTrouble(null);
    if (!edits.length) return setSeen(null);
    let wanted = true;
    const run = async () => {
      const ids = new Map<string, string>();
      for (const one of edits) if (one.kind === 'pa' && !ids.has(one.name)) ids.set(one.name, (await server.post<PromptRead>('/api/prompts', { tab: server.tab, text: one.name, chat: place.chat })).id);
      const { answer, wrong, draws, seed, dose, features } = place;
      return server.post<EditSeen>('/api/edit', { tab: server.tab, prompt: prompt.id, ...cell, answer, wrong, draws, seed, dose, features, edits: planned(edits, ids) });
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
    }, turn === ran.current ? PAUSE : 0);
    ran.current = turn;
    return () => {
      wanted = false;
      setRunning(false);
      clearTimeout(wait);
    };
  }, [server, key, turn]);
  const again = useCallback(() => setTurn((n) => n + 1), []);
  return { seen, trouble, running, again };
};

/** Below this change nothing is said to happen to the answer. */
const LITTLE = 0.1;
const said = (seen: EditSeen): string => {
  if (Math.abs(seen.change) < LITTLE) return 'hardly changes';
  if (seen.claim === null) return 'changes, and there is nothing to compare that with';
  return seen.claim.supported ? 'changes by more than chance' : 'changes by no more than chance';
};

const Effect = ({ seen }: { seen: EditSeen }) => {
  const { before, after, predicted, controls, change } = seen;
  const name = (one: string) => KINDS[one] ?? one;
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
    <Figure class="effect">
      <figcaption>
        <b class="verdict-line">
          The answer {said(seen)}: {by} {signed(change)}.
        </b>{' '}
        ● seen in the changed model, <span class="ringmark">○</span> {predicted === null ? 'not predicted here: the change reaches this cell through the whole model' : 'predicted by the table alone'}. Grey: as much of something else.
      </figcaption>
      <div class="two">
        <Dots title="Attention of this cell" rows={attention} low={0} high={1} of="attention" />
        <Dots title={`Change of the ${by} of the answer`} rows={answer} low={low - (low < 0 ? pad : 0)} high={high + pad} of="change" />
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
            <th scope="col" class="n">
              difference
            </th>
          </tr>
        </thead>
        <tbody>
          {seen.top.slice(0, 6).map((one) => (
            <tr>
              <th scope="row">
                <Shown text={one.token} most={20} />
              </th>
              <td class="n" {...explained('probability', { v: one.before }, false)}>
                {number(one.before)}
              </td>
              <td class="n" {...explained('probability', { v: one.after }, false)}>
                {number(one.after)}
              </td>
              <td class="n" {...explained('difference', { after: one.after, before: one.before, v: one.after - one.before })}>
                {signed(one.after - one.before, 3)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <ul class="soft controls-text">
        {controls.map((one) => (
          <li>
            <b>{name(one.name)}</b>: {one.text}; p = {one.attention_p === null ? '' : `${number(one.attention_p)} for the attention, `}
            <span {...explained('p', { m: one.tried, v: one.p })}>{number(one.p)}</span> for the answer (in {plural(one.tried, 'changed run')})
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
    </Figure>
  );
};
