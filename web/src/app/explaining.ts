// One explanation at a time: asked for when what is asked changes, filled in as its parts become known, stopped when
// nobody wants it any more.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { ExplanationDocument } from '../explanation/document';
import type { Shared, Trouble } from './app';
import { troubleOf } from './app';
import type { Begun, CellRequest } from './wire';

/** ``refused`` is what the core says of a head that the chosen features are not of. */
export type Known = Partial<ExplanationDocument> & { refused?: Trouble };

export interface Explained {
  job: string;
  known: Known;
  /** Everything is known. */
  whole: boolean;
}

type Asked = Pick<CellRequest, 'head' | 'query' | 'key' | 'answer' | 'wrong' | 'tau' | 'draws' | 'seed' | 'features' | 'names'>;

const STEPS: Record<string, string> = {
  question: 'what made the score',
  features: 'what made the score',
  place: 'who wrote it',
  table: 'drawing the controls',
  predicted: 'taking it out of the running model',
};

export const newJob = (): string => [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

const keyOf = (id: string, { head, query, key, answer, wrong, tau, draws, seed, features, names }: Asked): string => JSON.stringify([id, head, query, key, answer, wrong, tau, draws, seed, features, names]);

interface Asking extends Pick<Shared, 'server' | 'read'> {
  /** The prompt; null while it is being read, or where nothing is asked. */
  id: string | null;
  ask: Asked;
  /** A question that was found. */
  onFound?: (cell: { head: string; query: number; key: number }) => void;
}

export const useExplained = ({ server, read, id, ask, onFound }: Asking) => {
  const [shown, setShown] = useState<Explained | null>(null);
  const [stage, setStage] = useState<string | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const job = useRef<string | null>(null);
  const asked = useRef('');
  const now = useRef({ id, ask, onFound });
  now.current = { id, ask, onFound };

  useEffect(
    () =>
      server.listen(({ kind, data }) => {
        const told = data as { job: string; step?: string; part?: Known; document?: ExplanationDocument; error?: string } & Partial<Trouble>;
        if (told.job !== job.current) return;
        if (kind === 'part') {
          setStage(STEPS[told.step ?? ''] ?? 'taking it out of the running model');
          setShown((before) => ({ job: told.job, known: { ...(before?.job === told.job ? before.known : {}), ...told.part }, whole: false }));
          const { head, query, key } = told.part ?? {};
          if (told.step !== 'question' || head === undefined || query === undefined || key === undefined) return;
          // Where something else is wanted by now, what was found must not be written over it.
          if (asked.current !== keyOf(now.current.id ?? '', now.current.ask)) return;
          // A question that was found has an address of its own, and is not asked twice.
          asked.current = keyOf(now.current.id ?? '', { ...now.current.ask, head, query, key });
          now.current.onFound?.({ head, query, key });
        } else {
          setStage(null);
          job.current = null;
          if (kind === 'done' && told.document) setShown((before) => ({ job: told.job, known: { ...before?.known, ...told.document }, whole: true }));
          if (kind === 'failed') setTrouble({ error: told.error ?? 'it failed', hint: null, where: told.where ?? null, choices: told.choices ?? [] });
        }
      }),
    [server],
  );

  const wanted = id === null ? '' : keyOf(id, ask);
  useEffect(() => {
    if (wanted === asked.current) return;
    asked.current = wanted;
    setTrouble(null);
    if (job.current) server.cancel(job.current);
    job.current = null;
    setStage(null);
    if (id === null) return setShown(null);
    // Its first parts may be told before the answer to the request is here.
    const mine = newJob();
    job.current = mine;
    server.post<Begun>('/api/explain', { tab: server.tab, job: mine, address: server.address.read(), prompt: id, ...ask, query: ask.head === null ? null : ask.query }).then(
      (begun) => {
        if (job.current === mine) setStage((at) => at ?? (begun.ahead ? `waiting for ${begun.ahead} before it` : 'finding the question'));
      },
      (error) => {
        if (job.current !== mine) return;
        asked.current = '';
        job.current = null;
        setStage(null);
        const said = troubleOf(error);
        if (said && /no longer in memory/.test(said.error)) void read();
        else setTrouble(said);
      },
    );
  }, [server, id, wanted]);
  useEffect(() => () => void (job.current && server.cancel(job.current)), [server]);

  const stop = useCallback(() => {
    if (job.current) server.cancel(job.current);
    setStage(null);
  }, [server]);
  return { shown, stage, trouble, stop };
};
