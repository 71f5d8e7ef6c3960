// Signed bars around a common zero. Against is hatched as well as of another colour.
import type { ComponentChildren } from 'preact';
import { explained } from './explained';

export interface Range {
  low: number;
  high: number;
}
export const rangeOf = (values: readonly number[]): Range => ({ low: Math.min(0, ...values), high: Math.max(0, ...values) });
const percent = (share: number): string => `${(100 * share).toFixed(2)}%`;

export const Track = ({ value, range, kind }: { value: number; range: Range; kind?: string | undefined }) => {
  const span = range.high - range.low || 1;
  return (
    <span class="track">
      <i class={`fill ${kind ?? (value < 0 ? 'neg' : 'pos')}`} style={{ left: percent((Math.min(0, value) - range.low) / span), width: percent(Math.abs(value) / span) }} />
      <i class="zero" style={{ left: percent(-range.low / span) }} />
    </span>
  );
};

interface BarProps {
  name: ComponentChildren;
  value: number;
  range: Range;
  text: string;
  kind?: string | undefined;
  sub?: ComponentChildren;
  /** What the number is called in the glossary. */
  of?: string;
}
export const Bar = ({ name, value, range, text, kind, sub, of = 'part' }: BarProps) => (
  <div class="bar">
    <span class="name">{name}</span>
    <Track value={value} range={range} kind={kind} />
    <span class="num" {...explained(of, { v: value })}>
      {text}
    </span>
    {sub ? <span class="sub">{sub}</span> : null}
  </div>
);
