// Place or content: does the head read the token for what it is, or for where it is?
import { Figure } from '../kit/figure';
import { Bar, rangeOf } from '../kit/bars';
import { Numbers } from '../kit/numbers';
import { signed } from '../numbers';
import type { ExplanationDocument } from './document';

const SAYS = {
  content: 'what the token is, wherever it is',
  place: 'how far away it is, whatever it is',
  interaction: 'this token at just this distance',
  level: 'what the cap on scores adds to all alike',
} as const;
type Part = keyof typeof SAYS;

export const Place = ({ data }: { data: ExplanationDocument }) => {
  const all: Part[] = ['content', 'place', 'interaction', 'level'];
  // Only a cap on scores leaves something to the level.
  const parts = all.filter((part) => part !== 'level' || Math.abs(data.place.level) >= 5e-4);
  const range = rangeOf(parts.map((part) => data.place[part]));
  return (
    <section class="place">
      <h2>Place or content?</h2>
      <p class="soft">
        A head can read a token for what it is or for where it is. The bars add up to {signed(data.log_odds.total)}, the log-odds of this attention above an even row; one may be larger than the sum if another works against it.
      </p>
      <Figure>
        {parts.map((part) => (
          <Bar name={<b>{part}</b>} value={data.place[part]} range={range} text={signed(data.place[part])} of={part} sub={SAYS[part]} />
        ))}
        <Numbers columns={['part', 'log-odds']} rows={all.map((part) => [part, data.place[part]])} />
      </Figure>
    </section>
  );
};
