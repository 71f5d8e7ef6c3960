// What the head then does with what it reads.
import type { ComponentChildren } from 'preact';
import { Figure } from '../kit/figure';
import { Bar, rangeOf } from '../kit/bars';
import { explained } from '../kit/explained';
import { Numbers } from '../kit/numbers';
import { Shown, Tok } from '../kit/tokens';
import { number, signed } from '../numbers';
import type { ExplanationDocument } from './document';

export const Consequence = ({ data }: { data: ExplanationDocument }) => {
  const { raised, lowered, direct, path, summed = [] } = data.consequence;
  const before = data.proof.before;
  const range = rangeOf([...raised, ...lowered].map((one) => one.logit));
  const answer = <Shown text={data.answer.text} most={18} />;
  const wrong = <Shown text={data.answer.wrong} most={18} />;
  const rows: [ComponentChildren, string, (v: number) => string, number, number][] = path
    ? [
        [<>probability of {answer}</>, 'probability', (v) => number(v), before.probability, path.probability],
        ['its log-probability', 'log-probability', (v) => number(v, 2), before.log_probability, path.log_probability],
        [<>lead over {wrong}</>, 'lead', (v) => signed(v), before.lead, path.lead],
      ]
    : [];
  return (
    <section class="consequence">
      <h2>Consequence</h2>
      <p class="soft">
        What {data.head} does with what it reads at <Tok at={data.key} most={18} />.
      </p>
      <div class="two">
        <Figure class="raised">
          <figcaption>
            <b>Tokens it raises and lowers</b> as the next token after <Tok at={data.query} most={18} />, by what it writes itself (logits against the average token).
          </figcaption>
          {[...raised, ...lowered].map((one) => (
            <Bar name={<Shown text={one.token} most={16} />} value={one.logit} range={range} text={signed(one.logit)} of="direct" />
          ))}
          <Numbers columns={['token', 'logit']} rows={[...raised, ...lowered].map((one) => [<Shown text={one.token} />, one.logit])} />
        </Figure>
        <Figure class="effects">
          <figcaption>
            <b>Effect on the answer</b> {answer}, against {wrong}.
          </figcaption>
          {direct ? (
            <p>
              Directly, by what it writes itself: answer <b {...explained('direct', { v: direct.answer })}>{signed(direct.answer)}</b>, its lead <b {...explained('direct', { v: direct.lead })}>{signed(direct.lead)}</b> (logits).
            </p>
          ) : (
            <p>Directly: nothing. The answer is read at the last token, and this head is not there.</p>
          )}
          {path ? (
            <>
              <p>In all, through the rest of the model: with this attention set to zero, and shared out among the other tokens, the model gives</p>
              <table class="beforeafter">
                <thead>
                  <tr>
                    <td />
                    <th class="n">as it is</th>
                    <th class="n">without</th>
                  </tr>
                </thead>
                <tbody>
                  {rows.map(([name, of, say, ...values]) => (
                    <tr>
                      <th scope="row">{name}</th>
                      {values.map((v) => (
                        <td class="n" {...explained(of, { v })}>
                          {say(v)}
                        </td>
                      ))}
                    </tr>
                  ))}
                </tbody>
              </table>
            </>
          ) : (
            <p>There is no other token that this attention could go to.</p>
          )}
          {summed.length ? (
            <>
              <p>Whole answers, the log-probability summed over their tokens:</p>
              <table class="beforeafter summed">
                <thead>
                  <tr>
                    <td />
                    {['as it is', 'without this cell', 'without its cause'].map((one) => (
                      <th class="n">{one}</th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {summed.map((one) => (
                    <tr>
                      <th scope="row">
                        <Shown text={one.text} />
                      </th>
                      {[one.before, one.path, one.after].map((v) => (
                        <td class="n" {...explained('log-probability', { v })}>
                          {number(v, 2)}
                        </td>
                      ))}
                    </tr>
                  ))}
                </tbody>
              </table>
            </>
          ) : null}
        </Figure>
      </div>
    </section>
  );
};
