// One row unfolded: what an MLP had read when it wrote this, and which of its neurons wrote it.
import { Bar, rangeOf } from '../kit/bars';
import { Numbers } from '../kit/numbers';
import { Tok } from '../kit/tokens';
import { signed } from '../numbers';
import type { Row } from './document';
import { spoken } from './names';

export const Unfolded = ({ row }: { row: Row }) => {
  const name = spoken(row.writer);
  const through = rangeOf(row.through.map((one) => one.log_odds));
  const neurons = rangeOf(row.neurons.map((one) => one.log_odds));
  const effects = row.through.some((one) => one.effect !== null);
  return (
    <div class="unfolded">
      {row.through.length ? (
        <div>
          <h3>What {name} had read</h3>
          <p class="soft">
            Its {signed(row.log_odds)}, shared among what it read.{effects ? ' In brackets: what really changes if that part is left out of what it reads. This is an effect, not a share, so effects need not add up.' : ''}
          </p>
          {row.through.map((one) => (
            <Bar
              name={one.writer === 'others' ? 'everything else' : spoken(one.writer)}
              value={one.log_odds}
              range={through}
              text={signed(one.log_odds)}
              kind={one.writer === 'others' ? 'plain' : undefined}
              sub={
                one.reads !== null || one.effect !== null ? (
                  <>
                    {one.reads === null ? null : (
                      <>
                        read <Tok at={one.reads} most={18} />
                      </>
                    )}
                    {one.role === null ? null : <span class="role">{one.role}</span>}
                    {one.effect === null ? null : ` (effect ${signed(one.effect)})`}
                  </>
                ) : null
              }
            />
          ))}
        </div>
      ) : null}
      {row.neurons.length ? (
        <div>
          <h3>Its neurons</h3>
          <p class="soft">The same {signed(row.log_odds)} by neuron. Neurons partly cancel: both signs count.</p>
          {row.neurons.map((one) => (
            <Bar name={typeof one.index === 'number' ? `neuron ${one.index}` : one.index === 'bias' ? 'output bias' : 'all others'} value={one.log_odds} range={neurons} text={signed(one.log_odds)} kind={typeof one.index === 'number' ? undefined : 'plain'} />
          ))}
        </div>
      ) : null}
      <Numbers
        columns={['part', 'read', 'log-odds', 'effect']}
        rows={[
          ...row.through.map((one) => [spoken(one.writer), one.reads === null ? '' : <Tok at={one.reads} />, one.log_odds, one.effect]),
          ...row.neurons.map((one) => [typeof one.index === 'number' ? `neuron ${one.index}` : one.index, '', one.log_odds, null]),
        ]}
      />
    </div>
  );
};
