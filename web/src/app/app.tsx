// The app: a prompt, all heads, one cell. The address says where one is; Back is undo.
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Server } from '../host';
import { Refused } from '../host';
import { Page } from '../kit/page';
import { Alert } from './alert';
import { Bar, TITLES } from './bar';
import { CellScreen } from './cell';
import { HeadsScreen } from './heads';
import { OtherWeights } from './other-weights';
import { KeyList, useKeys } from './keys';
import { LaterScreen } from './later';
import { LeftJobs } from './left';
import type { Place } from './place';
import { placeOf, remember, unnamed, unread, urlOf, weightsIn } from './place';
import { PromptScreen } from './prompt';
import { Takeaway } from './takeaway';
import type { AppState, KeptText, PromptRead } from './wire';

export type Go = (change: Partial<Place>, how?: 'push' | 'replace') => void;

/** What went wrong, and the field it belongs to. */
export interface Trouble {
  error: string;
  hint: string | null;
  where: string | null;
  /** What could stand there instead. */
  choices?: readonly string[];
}
export const troubleOf = (error: unknown): Trouble | null => {
  if (!(error instanceof Refused)) return { error: String(error), hint: null, where: null };
  return error.status === 409 ? null : { error: error.message, hint: error.hint, where: error.where, choices: error.choices };
};

export const AppPage = ({ server }: { server: Server }) => {
  const [place, setPlace] = useState<Place>(() => placeOf(server.address.read()));
  const [state, setState] = useState<AppState | null>(null);
  const [prompt, setPrompt] = useState<PromptRead | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const [there, setThere] = useState(true);
  const [listed, setListed] = useState(false);
  const now = useRef(place);
  now.current = place;

  const go = useCallback<Go>(
    (change, how = 'push') => {
      const next = { ...now.current, ...change };
      const long = unnamed(next);
      // A prompt that is too long for the address is kept first; where that fails, the address is long.
      if (long.length) return void Promise.all(long.map((text) => server.post<KeptText>('/api/texts', { text }).then(({ digest }) => remember(text, digest), () => remember(text, '')))).then(() => go(change, how));
      if (urlOf(next) === urlOf(now.current)) return;
      now.current = next;
      server.address.go(urlOf(next), how);
      setPlace(next);
    },
    [server],
  );
  useEffect(
    () =>
      server.address.listen(() => {
        now.current = placeOf(server.address.read());
        setPlace(now.current);
      }),
    [server],
  );
  useEffect(() => {
    // A link to a prompt that is kept on this machine.
    const wanted = unread(server.address.read());
    if (!wanted.length) return;
    Promise.all(wanted.map((digest) => server.get<KeptText>(`/api/texts/${digest}`).then(({ text }) => remember(text, digest)))).then(
      () => setPlace(placeOf(server.address.read())),
      (error) => setTrouble(troubleOf(error)),
    );
  }, [server]);
  // Whoever changes the model changes it for every tab.
  const [turn, setTurn] = useState(0);
  // Runs that were finished, by a study or in a terminal.
  const [more, setMore] = useState(0);
  useEffect(
    () =>
      server.listen(({ kind }) => {
        if (kind === 'model') setTurn((n) => n + 1);
        if (kind === 'runs') setMore((n) => n + 1);
      }, setThere),
    [server],
  );
  useEffect(() => {
    server.get<AppState>('/api/state').then(
      (got) => {
        setState(got);
        if (turn) go({ model: got.model, weights: weightsIn(got.weight_hash) }, 'replace');
      },
      (error) => setTrouble(troubleOf(error)),
    );
  }, [server, turn]);
  useEffect(() => {
    if (more) server.get<AppState>('/api/state').then(setState, () => undefined);
  }, [server, more]);

  // An address says what its numbers were made with; one that does not is of the model that is here.
  useEffect(() => {
    if (state && !place.weights && place.text.trim()) go({ model: state.model, weights: weightsIn(state.weight_hash) }, 'replace');
  }, [go, state, place.weights, place.text]);

  // The prompt of the address is read once; what is read is kept by the server, so to read it again costs little.
  const { text, chat } = place;
  const read = useCallback(async (): Promise<PromptRead | null> => {
    if (!text.trim()) return null;
    try {
      const got = await server.post<PromptRead>('/api/prompts', { tab: server.tab, text, chat });
      setTrouble(null);
      setPrompt(got);
      return got;
    } catch (error) {
      const said = troubleOf(error);
      if (said) setTrouble(said);
      return null;
    }
  }, [server, text, chat, turn]);
  useEffect(() => {
    setPrompt(null);
    void read();
  }, [read]);

  useEffect(() => {
    document.title = place.screen === 'cell' && place.head ? `${place.head} · headwise` : `${TITLES[place.screen]} · headwise`;
    // The prompt's screen puts the focus into its field.
    if (place.screen !== 'prompt') document.getElementById('screen')?.focus({ preventScroll: true });
  }, [place.screen, place.head]);

  useKeys({ go, place, state, server, list: () => setListed((shown) => !shown) });
  const shared = useMemo(() => ({ server, state, go, read }), [server, state, go, read]);
  return (
    <Page kind="app" themeKey="t" glossary={state?.glossary}>
      <Bar place={place} state={state} go={go} />
      <main id="screen" tabIndex={-1}>
        {/* Who was never let in has not lost the app. */}
        {there || !state ? null : (
          <p class="note" role="alert">
            The app does not answer. What you typed is kept here; the page goes on when it is back.
          </p>
        )}
        <OtherWeights server={server} place={place} state={state} go={go} />
        <LeftJobs server={server} go={go} />
        {place.screen === 'prompt' ? null : <Alert trouble={trouble} />}
        {place.screen === 'cell' || place.screen === 'circuit' ? null : <Takeaway server={server} place={place} state={state} />}
        {place.screen === 'prompt' ? <PromptScreen {...shared} place={place} prompt={prompt} trouble={trouble} /> : null}
        {place.screen === 'heads' ? <HeadsScreen {...shared} place={place} prompt={prompt} /> : null}
        {place.screen === 'cell' ? <CellScreen {...shared} place={place} prompt={prompt} /> : null}
        {place.screen === 'circuit' || place.screen === 'compare' || place.screen === 'runs' ? <LaterScreen key={place.screen} name={place.screen} {...shared} place={place} prompt={prompt} /> : null}
      </main>
      {listed && state ? <KeyList keys={state.keys} onClose={() => setListed(false)} /> : null}
    </Page>
  );
};

/** What every screen gets. */
export interface Shared {
  server: Server;
  state: AppState | null;
  go: Go;
  /** Read the prompt again, where the server no longer has it. */
  read: () => Promise<PromptRead | null>;
  place: Place;
  prompt: PromptRead | null;
}
