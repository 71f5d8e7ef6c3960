// Values along one axis, a line for each: an open ring is predicted, a dot observed, a shape the spread of random draws.
import { useEffect, useRef, useState } from 'preact/hooks';
import { signed, tick, ticks } from '../numbers';
import { explained } from './explained';
import { short } from '../text';

export interface DotRow {
  name: string;
  text: string;
  dot?: number | undefined;
  ring?: number | undefined;
  /** A line from here to the dot. */
  from?: number | undefined;
  spread?: { mean: number; low: number; high: number; histogram?: readonly number[] } | undefined;
  cloud?: readonly number[] | undefined;
}

interface DotsProps {
  title: string;
  rows: readonly DotRow[];
  low: number;
  high: number;
  /** What its numbers are called in the glossary. */
  of: string;
}

const HIGH = 34;
const TOP = 28;

const WIDE = 560;

export const Dots = ({ title, rows, low, high, of }: DotsProps) => {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(WIDE);
  // As wide as there is room, so that its letters keep their size.
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const sizes = new ResizeObserver(() => setWidth(Math.max(280, Math.min(WIDE, element.clientWidth))));
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);
  const label = Math.max(124, Math.min(158, width * 0.32));
  const right = width - Math.min(136, width * 0.34);
  const x = (v: number) => label + ((right - label) * (Math.min(high, Math.max(low, v)) - low)) / (high - low || 1);
  const bottom = TOP + rows.length * HIGH;
  return (
    <div class="dots-box" ref={box}>
      <svg class="dots" viewBox={`0 0 ${width} ${bottom + 24}`} role="img" aria-label={`${title}: ${rows.map((row) => `${row.name} ${row.text}`).join('; ')}`}>
        <text class="ink strong" x={0} y={14}>
          {title}
        </text>
        {ticks(low, high).map((v) => (
          <g>
            <line class="gridline" x1={x(v)} x2={x(v)} y1={TOP} y2={bottom} />
            <text x={x(v)} y={bottom + 16} text-anchor="middle">
              {tick(v)}
            </text>
          </g>
        ))}
        {rows.map((row, i) => {
          const y = TOP + HIGH * (i + 0.5);
          return (
            <g>
              <title>{`${row.name}: ${row.text}`}</title>
              <text class="ink" x={0} y={y + 4}>
                {short(row.name, Math.floor(label / 6.4))}
              </text>
              {row.spread ? <Spread spread={row.spread} x={x} y={y} /> : null}
              {(row.cloud ?? []).map((v, j) => (
                <circle class="cloud" cx={x(v)} cy={y + (((j * 7) % 5) - 2) * 2.6} r={2.4} />
              ))}
              {row.from !== undefined && row.dot !== undefined ? <line class="stem" x1={x(row.from)} x2={x(row.dot)} y1={y} y2={y} /> : null}
              {row.dot === undefined ? null : <circle class="dot" cx={x(row.dot)} cy={y} r={4.2} />}
              {row.ring === undefined ? null : <circle class="ring" cx={x(row.ring)} cy={y} r={7.4} />}
              <text class="ink" x={width} y={y + 4} text-anchor="end" {...explained(row.spread ? 'controls' : of, { v: row.dot })}>
                {row.text}
              </text>
            </g>
          );
        })}
      </svg>
    </div>
  );
};

const Spread = ({ spread, x, y }: { spread: NonNullable<DotRow['spread']>; x: (v: number) => number; y: number }) => {
  const { histogram, mean, low, high } = spread;
  const most = Math.max(1, ...(histogram ?? []));
  return (
    <g class="spread">
      {(histogram ?? []).map((count, i, all) => {
        if (!count) return null;
        const [a, b] = [x(i / all.length), x((i + 1) / all.length)];
        const tall = Math.max(1, 24 * (count / most));
        return <rect class="bin" x={a} y={y + 12 - tall} width={Math.max(1, b - a - 0.6)} height={tall} />;
      })}
      <line class="band" x1={x(low)} x2={Math.max(x(high), x(low) + 1)} y1={histogram ? y + 14 : y} y2={histogram ? y + 14 : y} />
      <line class="mean" x1={x(mean)} x2={x(mean)} y1={y - 8} y2={y + 14} />
    </g>
  );
};

export const spreadText = (spread: { mean: number; low: number; high: number }, digits: number, sign = false): string => {
  const say = (v: number) => (sign ? signed(v, digits) : v.toFixed(digits));
  return `${say(spread.low)} to ${say(spread.high)}`;
};
