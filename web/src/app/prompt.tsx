// The start: type a prompt, see its tokens while typing and the model's answer once it is read.
import { useEffect, useRef, useState } from 'preact/hooks';
import { Caption } from '../kit/caption';
import { pieces } from '../text';
import { Answers } from './answers';
import { Alert } from './alert';
import type { Shared, Trouble } from './app';
import { troubleOf } from './app';
import { ModelPicker } from './model';
import type { TokenList } from './wire';

const PAUSE = 150;
export const PromptScreen = ({ server, state, go, place, prompt, trouble }: Shared & { trouble: Trouble | null }) => {
  const [draft, setDraft] = useState(place.text);
  const [tokens, setTokens] = useState<readonly string[]>([]);
  const [own, setOwn] = useState<Trouble | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => setDraft(place.text), [place.text]);
  useEffect(() => field.current?.focus(), []);
  useEffect(() => {
    const wait = setTimeout(() => {
      server.post<TokenList>('/api/tokens', { text: draft, chat: place.chat }).then(
        (got) => {
          setTokens(got.tokens);
          setOwn(null);
        },
        (error) => {
          setTokens([]);
          setOwn(troubleOf(error));
        },
      );
    }, PAUSE);
    return () => clearTimeout(wait);
  }, [server, draft, place.chat]);
  const run = (text: string) => go({ text, head: null, query: null, key: null, answer: null, wrong: null, row: null, edits: '' });
  const said = own ?? (draft === place.text ? trouble : null);
  const isRead = prompt !== null && draft === place.text;
  return (
    <section class="prompt-screen">
      <h1>Why does this head attend here?</h1>
      <p class="soft">
        <Caption of="start" />
      </p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          run(draft);
        }}
      >
        <label for="prompt-text">Prompt</label>
        <textarea
          id="prompt-text"
          ref={field}
          rows={4}
          value={draft}
          aria-invalid={said !== null}
          aria-describedby={said ? 'prompt-trouble' : undefined}
          placeholder="Type a text that the model is to go on with"
          onInput={(event) => setDraft(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            run(draft);
          }}
        />
        <Alert trouble={said} id="prompt-trouble" />
        <div class="row-of-controls">
          <button type="submit" class="main" disabled={!draft.trim()}>
            Read it
          </button>
          <ModelPicker server={server} state={state} place={place} go={go} />
          {state?.has_chat ? (
            <label>
              <input type="checkbox" checked={place.chat} onChange={(event) => go({ chat: event.currentTarget.checked }, 'replace')} /> as a chat message
            </label>
          ) : null}
          <span class="soft">Enter reads, Shift + Enter begins a line</span>
        </div>
      </form>
      <p class="token-line" role="group" aria-label={`${tokens.length} tokens`}>
        {tokens.map((token) => (
          <bdi class="token">{pieces(token).map((part) => (part.space ? <span class="ws">{part.text}</span> : part.text))}</bdi>
        ))}
        {tokens.length ? <span class="at"> {tokens.length} tokens</span> : null}
      </p>
      {isRead ? (
        <>
          <Answers prompt={prompt} place={place} go={go} />
          <div class="row-of-controls">
            <button type="button" class="main" onClick={() => go({ screen: 'heads' })}>
              See every head
            </button>
            <button type="button" class="small" onClick={() => go({ screen: 'cell', head: null, query: null, key: null })}>
              Explain the answer
            </button>
          </div>
        </>
      ) : place.text && draft === place.text && !said ? (
        <p class="soft" role="status">
          The model is reading …
        </p>
      ) : null}
      <h2>Examples</h2>
      <ul class="examples">
        {state?.examples.map(([about = '', text = '']) => (
          <li>
            <button type="button" class="small" onClick={() => run(text)}>
              {text}
            </button>{' '}
            <span class="soft">{about}</span>
          </li>
        ))}
      </ul>
    </section>
  );
};
