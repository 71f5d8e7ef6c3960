// What every word and number on the page means.
const ENTRIES: readonly [term: string, formula: string, words: string][] = [
  ['Attention', 'A = softmax of scale · q · k over the tokens so far', 'At every token a head makes a query, what it looks for, and every token before it offers a key. Where the two fit, the head attends: it copies something from that token. The attentions of one row add up to 1.'],
  ['Log-odds', 'log(A ÷ (1 − A)) + log(n − 1)', 'How far this attention is above an even row of n tokens, in nats. Log-odds add up where attentions do not: a part of +1 multiplies the odds of this token by 2.7, a part of −1 divides them by it.'],
  ['Place or content', 'total = content + place + interaction (+ level)', 'Content: what the token would get for what it is, at the average distance. Place: what the average token would get at this distance. Interaction: what neither explains alone. The level is zero unless the model caps its scores.'],
  ['Writers', 'query side: Σ rows = total; key side: Σ rows = total', 'Every layer adds to what a token carries. A writer is one part that added something: the embedding, a head’s reading of one token, an MLP, a bias. Both sides explain the same number: they are two accounts of it, not two halves.'],
  ['Channels', 'what a channel brings = Σ over all writers', 'The head reads in a few directions; channel 0, salience, is what it likes whatever is asked. Only channels that come out the same on other text have a number; the others are one block.'],
  ['The cause', '1-minimal: no writer of it can be left out', 'A set of whole writers on one side whose removal takes the attention below a threshold. There may be others; the proof says whether the next-best would do as much.'],
  ['Through an MLP', 'its row = Σ over what it read = Σ over its neurons', 'An MLP mixes what it reads. Its row is shared among what it read by a fixed rule (half to each factor of a gate). The effect beside it is what really changes when that part is left out.'],
  ['Direct and path effect', 'as it is → without this attention', 'Direct: what the head itself adds to the answer. Path: the whole model run with this attention at zero, all later layers included.'],
  ['Specific', 'p ≤ 0.05 against each kind of random removal', 'The cause takes more attention away than matched removals: unused channels, other writers, and random directions, all scaled to the same length.'],
  ['Redundant', 'the next-best set takes at least half of the drop', 'Then the head would largely look there even if the cause were missing.'],
  ['Matters', 'change of log p(answer) of at least 0.1, p ≤ 0.05', 'A head may be explained well and still matter little for the answer: others can make up for it.'],
];

export const HowTo = () => (
  <details class="howto">
    <summary>How to read this</summary>
    <dl>
      {ENTRIES.map(([term, formula, words]) => (
        <>
          <dt>{term}</dt>
          <dd>
            <span class="formula">{formula}</span>
            <br />
            {words}
          </dd>
        </>
      ))}
    </dl>
  </details>
);
