// Why not elsewhere: the other tokens with most attention, and where they fall behind.
import { Figure } from '../kit/figure';
import { Bar, rangeOf } from '../kit/bars';
import { Caption } from '../kit/caption';
import { Numbers } from '../kit/numbers';
import { Tok } from '../kit/tokens';
import { number, signed } from '../numbers';
import type { ExplanationDocument } from './document';

export const Rivals = ({ data }: { data: ExplanationDocument }) => {
  if (!data.rivals.length) return null;
  const range = rangeOf(data.rivals.map((one) => one.gap));
  const channels = (list: readonly { channel: number; value: number }[]) => list.map((one) => `${data.numbered === null || data.numbered.includes(one.channel) ? one.channel : 'unnumbered'} (${signed(one.value)})`).join(', ');
  return (
    <section class="rivals">
      <h2>Why not elsewhere?</h2>
      <p class="soft"><Caption of="rivals" /></p>
      <Figure>
        {data.rivals.map((one) => (
          <Bar
            name={<Tok at={one.key} most={16} />}
            value={one.gap}
            range={range}
            text={signed(one.gap)}
            of="logit gap"
            sub={`attention ${number(one.attention)}${one.channels.length ? `; ${one.gap < 0 ? 'is ahead, though it loses' : 'loses most'} in channels ${channels(one.channels)}` : ''}`}
          />
        ))}
        <Numbers columns={['key', 'attention', 'logit gap', 'channels']} rows={data.rivals.map((one) => [<Tok at={one.key} />, one.attention, one.gap, channels(one.channels)])} />
      </Figure>
    </section>
  );
};
