// Named features, where banks of them were given: their part of the score, who wrote them, and each one taken out.
import type { Host } from '../host';
import { Figure } from '../kit/figure';
import { Bar, rangeOf } from '../kit/bars';
import { Caption } from '../kit/caption';
import { Dots } from '../kit/dots';
import { Numbers } from '../kit/numbers';
import { TickBox } from '../kit/tick';
import { Tok } from '../kit/tokens';
import { number, signed, sum } from '../numbers';
import { readable } from '../text';
import type { ExplanationDocument, Features as Document } from './document';
import { SIDES } from './document';
import { SIDE_WORDS, spoken } from './names';

const MOST = 7;

export const Features = ({ data, host }: { data: ExplanationDocument; host: Host }) => {
  const { features } = data;
  if (!features) return null;
  return (
    <section class="features">
      <h2>By named feature</h2>
      <p class="soft"><Caption of="features" /></p>
      <div class="two">
        <Parts features={features} total={data.log_odds.total} host={host} />
        {features.tests.length ? <Tests features={features} before={data.proof.before.attention} /> : null}
        {features.writers.map((one) => (
          <Writers feature={one} />
        ))}
      </div>
    </section>
  );
};

const Parts = ({ features, total, host }: { features: Document; total: number; host: Host }) => {
  const parts = [...features.parts, ...(features.unexplained === null ? [] : [{ name: 'unexplained', rank: null, value: features.unexplained, logit: null }])];
  const range = rangeOf(parts.map((one) => one.value));
  const share = features.unexplained_share;
  return (
    <Figure class="parts">
      <figcaption>
        <b>Log-odds {signed(total)} by feature.</b> {share === null ? '' : `Unexplained: ${Math.round(100 * share)} %.`}
      </figcaption>
      {parts.map((one) => (
        <Bar
          name={
            <>
              {one.rank === null ? null : <TickBox host={host} what={{ kind: 'ft', name: one.name }} name={`the feature ${readable(one.name)}`} />}
              <bdi>{readable(one.name)}</bdi>
            </>
          }
          value={one.value}
          range={range}
          text={signed(one.value)}
          kind={one.rank === null ? 'plain' : undefined}
        />
      ))}
      <Numbers columns={['feature', 'rank', 'log-odds', 'logit']} rows={parts.map((one) => [readable(one.name), one.rank, one.value, one.logit])} />
    </Figure>
  );
};

const Writers = ({ feature }: { feature: Document['writers'][number] }) => {
  const sides = SIDES.map((side) => {
    const list = feature.writers.filter((one) => one.side === side);
    return { side, list: list.slice(0, MOST), rest: sum(list.slice(MOST).map((one) => one.log_odds)) + (feature.rest[side] ?? 0) };
  });
  const range = rangeOf(sides.flatMap((one) => [...one.list.map((writer) => writer.log_odds), one.rest]));
  return (
    <Figure class="featurewriters">
      <figcaption>
        <b>
          Who wrote <bdi>{readable(feature.name)}</bdi>.
        </b>{' '}
        Each side adds up to its log-odds, {signed(feature.log_odds)}: two views of one number.
      </figcaption>
      {sides.map(({ side, list, rest }) => (
        <>
          <h3 class={side}>{SIDE_WORDS[side].title}</h3>
          {list.map((one) => (
            <Bar name={spoken(one.name)} value={one.log_odds} range={range} text={signed(one.log_odds)} sub={one.source === undefined ? null : <>read <Tok at={one.source} most={18} /></>} />
          ))}
          <Bar name="the rest" value={rest} range={range} text={signed(rest)} kind="plain" />
        </>
      ))}
      <Numbers columns={['side', 'writer', 'at', 'read', 'log-odds']} rows={feature.writers.map((one) => [one.side, spoken(one.name), <Tok at={one.position} />, one.source === undefined ? '' : <Tok at={one.source} />, one.log_odds])} />
    </Figure>
  );
};

const Tests = ({ features, before }: { features: Document; before: number }) => {
  const kinds: Record<string, string> = { ablation: 'removed', swap: 'swapped' };
  const rows = [
    { name: 'as it is', dot: before, text: number(before) },
    ...features.tests.map((one) => ({ name: `${readable(one.name)}, ${kinds[one.kind] ?? one.kind}`, dot: one.observed.attention, ring: one.predicted, cloud: one.controls, from: before, text: `${number(one.observed.attention)} · ${one.percentile.toFixed(0)} %` })),
  ];
  const top = Math.max(...rows.map((row) => row.dot), ...features.tests.flatMap((one) => one.controls));
  return (
    <Figure class="featuretests">
      <figcaption>
        <b>Each feature removed from the query, or swapped between this token and its strongest rival.</b> <Caption of="feature tests" />
      </figcaption>
      <Dots title="Attention of this cell" rows={rows} low={0} high={Math.min(1, top * 1.08)} of="attention" />
      <Numbers
        columns={['feature', 'edit', 'predicted attention', 'attention', 'probability', 'lead', 'percentile']}
        rows={features.tests.map((one) => [readable(one.name), one.kind, one.predicted, one.observed.attention, one.observed.probability, one.observed.lead, one.percentile])}
      />
    </Figure>
  );
};
