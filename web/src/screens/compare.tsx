// Two prompts side by side, or one before and after what the bench changes: the answer, every head, one head's row.
import { useEffect, useState } from 'preact/hooks';
import { Shown } from '../kit/tokens';
import { isolated, readable } from '../text';
import { Alert } from '../app/alert';
import type { Shared, Trouble } from '../app/app';
import { troubleOf } from '../app/app';
import type { HeadsSeen, PromptRead } from '../app/wire';
import { useEffectOf } from './bench';
import { Diff } from './diff';
import { Difference } from './difference';

const LISTED = 30;

interface Side {
  prompt: PromptRead;
  heads: HeadsSeen;
}

export const CompareScreen = (props: Shared) => {
  const { place, go, prompt } = props;
  const [other, setOther] = useState(place.other);
  const { sides, trouble, running } = useSides(props);
  if (!place.text.trim()) return <p>Type a prompt first.</p>;
  return (
    <section class="compare-screen">
      <h1>Compare</h1>
      <p class="lead">{isolated(readable(place.text))}</p>
      <form
        class="row-of-controls patch"
        onSubmit={(event) => {
          event.preventDefault();
          go({ other, align: '' });
        }}
      >
        <label>
          with <input value={other} placeholder="another prompt" onInput={(event) => setOther(event.currentTarget.value)} />
        </label>
        <button type="submit" class="small">
          compare
        </button>
        <span class="stage" role="status">
          {running ? 'the model is reading …' : ''}
        </span>
      </form>
      <Alert trouble={trouble} />
      {sides ? <Both sides={sides} {...props} /> : null}
      {prompt && place.edits && place.head !== null && place.query !== null && place.key !== null ? <Edited {...props} prompt={prompt} cell={{ head: place.head, query: place.query, key: place.key }} /> : place.other ? null : <p class="soft">Give another prompt; or change something on the bench, and see here what it changes.</p>}
    </section>
  );
};

const useSides = ({ server, place, prompt }: Shared) => {
  const [sides, setSides] = useState<[Side, Side] | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const [running, setRunning] = useState(false);
  const { other, chat } = place;
  useEffect(() => {
    setTrouble(null);
    if (!prompt || !other.trim()) return setSides(null);
    let wanted = true;
    setRunning(true);
    const side = async (read: PromptRead): Promise<Side> => ({ prompt: read, heads: await server.get<HeadsSeen>(`/api/prompts/${read.id}/heads`) });
    const ask = async () => {
      const second = await server.post<PromptRead>('/api/prompts', { tab: server.tab, text: other, chat });
      const both: [Side, Side] = [await side(prompt), await side(second)];
      if (wanted) setSides(both);
    };
    ask()
      .catch((error) => wanted && setTrouble(troubleOf(error)))
      .finally(() => wanted && setRunning(false));
    return () => {
      wanted = false;
    };
  }, [server, prompt?.id, other, chat]);
  return { sides, trouble, running };
};

const Both = ({ sides: [a, b], server, place, go }: { sides: [Side, Side] } & Shared) => {
  const chance = (side: Side, token: string): number | null => side.prompt.answer.find((one) => one.token === token)?.p ?? null;
  const tokens = [...new Set([...a.prompt.answer, ...b.prompt.answer].map((one) => one.token))];
  const [x, y] = [a.heads.statistics.brings, b.heads.statistics.brings];
  const heads = x.map((_, i) => i).sort((i, j) => Math.abs((y[j] ?? 0) - (x[j] ?? 0)) - Math.abs((y[i] ?? 0) - (x[i] ?? 0)));
  const name = (i: number): string => `L${Math.floor(i / a.heads.heads)}H${i % a.heads.heads}`;
  return (
    <>
      <div class="two">
        <Diff title="Next token: the five likeliest of each" name="token" of="probability" lines={tokens.map((one) => [<Shown text={one} most={20} />, chance(a, one), chance(b, one)])} />
        <Diff title="What each head brings of its own prompt's answer (log-probability), the largest difference first; a click asks why it attends" name="head" of="brings" lines={heads.slice(0, LISTED).map((i) => [name(i), x[i] ?? null, y[i] ?? null])} onPick={(line) => go({ head: String(line[0]), query: null, key: null, align: '', edits: '' }, 'replace')} />
      </div>
      <Difference server={server} place={place} go={go} ids={[a.prompt.id, b.prompt.id]} />
    </>
  );
};

/** Before and after what the bench changes. */
const Edited = ({ server, place, go, prompt, cell }: Parameters<typeof useEffectOf>[0]) => {
  const { seen, trouble, running } = useEffectOf({ server, place, go, prompt, cell });
  if (trouble)
    return (
      <p class="note" role="alert">
        {trouble.error}
      </p>
    );
  if (!seen) return running ? <p class="soft">running the changed model …</p> : null;
  const { before, after } = seen;
  return (
    <div class="two edited">
      <Diff changed title="Next token, as it is and changed" name="token" of="probability" lines={seen.top.map((one) => [<Shown text={one.token} most={20} />, one.before, one.after])} />
      <Diff
        changed
        title={`${cell.head} from ${cell.query} to ${cell.key}, and the answer`}
        name="number"
        of=""
        lines={[
          ['attention', before.attention, after.attention],
          ['probability', before.probability, after.probability],
          ['log-probability', before.log_probability, after.log_probability],
          ['lead', before.lead, after.lead],
        ]}
      />
    </div>
  );
};
