// The model's next tokens: one is the answer, another may be the one it is compared with.
import { explained } from '../kit/explained';
import { Shown } from '../kit/tokens';
import { number } from '../numbers';
import type { Go } from './app';
import type { Place } from './place';
import type { PromptRead } from './wire';

/** The fields that are chosen here. */
export const ANSWER = ['answer', 'wrong'];

export const Answers = ({ prompt, place, go }: { prompt: PromptRead; place: Place; go: Go }) => {
  const first = prompt.answer[0]?.token ?? null;
  const answer = place.answer ?? first;
  // An address may name tokens that are not among the likeliest.
  const others = [place.answer, place.wrong].filter((one): one is string => one !== null && !prompt.answer.some(({ token }) => token === one));
  const click = (token: string) => {
    if (token === place.wrong) go({ wrong: null });
    else if (token === place.answer) go({ answer: null, wrong: null });
    else if (place.answer === null) go({ answer: token });
    else go({ wrong: token });
  };
  return (
    <div class="answers" role="group" aria-label="What comes next: choose the answer, then the token it is compared with">
      <span class="soft">next token</span>
      {[...prompt.answer, ...others.map((token) => ({ token, p: null }))].map(({ token, p }) => {
        const is = token === answer ? 'answer' : token === place.wrong ? 'compared' : '';
        return (
          <button type="button" class={`answer-chip ${is}`} aria-pressed={is !== ''} {...(p === null ? {} : explained('probability', { v: p }, false))} onClick={() => click(token)}>
            <Shown text={token} most={18} /> <span class="n">{p === null ? '' : number(p)}</span>
            {is ? <span class="is">{is === 'answer' ? 'answer' : 'compared with'}</span> : null}
          </button>
        );
      })}
    </div>
  );
};
