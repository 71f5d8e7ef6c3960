// Which model is at work: one of those that the app may load.
import { useEffect, useRef, useState } from 'preact/hooks';
import { isolated, readable } from '../text';
import { Alert } from './alert';
import type { Shared, Trouble } from './app';
import { troubleOf } from './app';
import { newJob } from './explaining';
import type { Begun } from './wire';

type PickerProps = Pick<Shared, 'server' | 'state' | 'place' | 'go'>;

/** Loading a model, from anywhere: what is being loaded, what went wrong, and how to begin. */
export const useModel = ({ server, go }: Pick<PickerProps, 'server' | 'go'>) => {
  const [loading, setLoading] = useState<string | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const job = useRef('');
  useEffect(
    () =>
      server.listen(({ kind, data }) => {
        const told = data as { job?: string; error?: string };
        if (told.job !== job.current) return;
        setLoading(null);
        if (kind === 'failed') setTrouble({ error: told.error ?? 'it failed', hint: null, where: 'model' });
        // A head of one model is not that of another.
        if (kind === 'done') go({ head: null, query: null, key: null, answer: null, wrong: null, row: null, edits: '', features: [], named: null, root: '', opened: '', node: '', names: '' }, 'replace');
      }),
    [server],
  );
  const load = (name: string) => {
    job.current = newJob();
    setLoading(name);
    setTrouble(null);
    server.post<Begun>('/api/model', { tab: server.tab, job: job.current, name }).catch((error) => {
      setLoading(null);
      setTrouble(troubleOf(error));
    });
  };
  return { loading, trouble, load };
};

export const ModelPicker = ({ server, state, go }: PickerProps) => {
  const { loading, trouble, load } = useModel({ server, go });
  if (!state) return null;
  return (
    <>
      <label class="model-picker">
        model{' '}
        <select value={loading ?? state.chosen} disabled={loading !== null} onChange={(event) => load(event.currentTarget.value)}>
          {state.models.map((one) => (
            <option value={one}>{isolated(readable(one))}</option>
          ))}
        </select>
      </label>
      <span class="soft" role="status">
        {loading === null ? '' : `loading ${isolated(readable(loading))} and checking it …`}
      </span>
      <Alert trouble={trouble} />
    </>
  );
};
