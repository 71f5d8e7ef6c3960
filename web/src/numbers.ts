// Numbers as they are written: one minus sign, no "−0.00", and a dash for what is not there.
type Maybe = number | null | undefined;

const minus = (text: string): string => text.replace('-', '−');
const tidy = (text: string): string => (/^-0\.?0*$/.test(text) ? text.slice(1) : text);

/** A plain number; one too small for its digits keeps its first figure. */
export const number = (v: Maybe, digits = 3): string => {
  if (v === null || v === undefined) return '–';
  return minus(v === 0 || Math.abs(v) >= 0.5 * 10 ** -digits ? tidy(v.toFixed(digits)) : v.toExponential(0));
};

/** An attention or a probability in a sentence. */
export const share = (v: Maybe): string => (v !== null && v !== undefined && v > 0 && v < 0.0005 ? 'less than 0.001' : number(v));

/** A number that has a direction. */
export const signed = (v: Maybe, digits = 2): string => {
  if (v === null || v === undefined) return '–';
  const size = Math.abs(v).toFixed(digits);
  return Number(size) === 0 ? size : `${v > 0 ? '+' : '−'}${size}`;
};

export const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);

/** Round marks for an axis. */
export const ticks = (low: number, high: number): number[] => {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / 4));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => span / s <= 5) ?? 10 * power;
  const made: number[] = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step) made.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return made;
};
export const tick = (v: number): string => minus(String(Number(v.toFixed(6))));
