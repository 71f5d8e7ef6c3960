// All heads on one canvas: where each picture is, and how it is painted.
import type { Colours } from '../kit/canvas';
import { ramp } from '../kit/canvas';

export const GAP = 8;
const LABEL = 15;
const SIZE = 48;
const FONT = '11px ui-monospace, Menlo, Consolas, monospace';

export interface Grid {
  columns: number;
  size: number;
  /** From one picture to the next. */
  step: [number, number];
  height: number;
}

/** As many columns as there is room for; in the order of layers, whole layers beside one another. */
export const gridOf = (width: number, count: number, perLayer: number, byLayer: boolean): Grid => {
  const fit = Math.max(1, Math.floor((width + GAP) / (SIZE + GAP)));
  const columns = byLayer && fit >= perLayer ? perLayer * Math.floor(fit / perLayer) : Math.min(fit, Math.max(1, count));
  const size = Math.max(24, Math.min(84, Math.floor((width + GAP) / columns) - GAP));
  const step: [number, number] = [size + GAP, size + GAP + LABEL];
  return { columns, size, step, height: Math.ceil(count / columns) * step[1] };
};

export const spotOf = (grid: Grid, i: number): [number, number] => [(i % grid.columns) * grid.step[0], Math.floor(i / grid.columns) * grid.step[1]];

export const over = (grid: Grid, x: number, y: number, count: number): number | null => {
  const [column, row] = [Math.floor(x / grid.step[0]), Math.floor(y / grid.step[1])];
  const i = row * grid.columns + column;
  return x < 0 || y < 0 || column >= grid.columns || i >= count ? null : i;
};

export interface Painted {
  /** Heads that are shown, in their order. */
  shown: readonly number[];
  names: readonly string[];
  marked: ReadonlySet<number>;
  /** [heads, side, side]: the root of attention in 255 steps. */
  thumbs: Uint8Array;
  side: number;
  /** [heads, T]: one row of every head, instead of the pictures. */
  row: Uint8Array | null;
  tokens: number;
  cursor: number | null;
}

export const paint = (element: HTMLCanvasElement, grid: Grid, colours: Colours, what: Painted): void => {
  const context = element.getContext('2d');
  if (!context) return;
  const ratio = Math.max(1, Math.min(3, devicePixelRatio || 1));
  element.width = element.clientWidth * ratio;
  element.height = grid.height * ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.imageSmoothingEnabled = false;
  context.font = FONT;
  context.textBaseline = 'top';
  const shades = ramp(colours);
  const image = document.createElement('canvas');
  image.width = image.height = what.side;
  const small = image.getContext('2d');
  const pixels = small?.createImageData(what.side, what.side);
  if (!small || !pixels) return;
  const words = new Uint32Array(pixels.data.buffer);
  const area = what.side * what.side;
  what.shown.forEach((head, i) => {
    const [x, y] = spotOf(grid, i);
    if (what.row) {
      bars(context, what.row.subarray(head * what.tokens, (head + 1) * what.tokens), x, y, grid.size, colours);
    } else {
      for (let at = 0; at < area; at++) words[at] = shades[what.thumbs[head * area + at] ?? 0] ?? 0;
      small.putImageData(pixels, 0, 0);
      context.drawImage(image, x, y, grid.size, grid.size);
    }
    const isMarked = what.marked.has(head);
    const isHere = what.cursor === i;
    context.strokeStyle = isHere ? colours.ink : isMarked ? colours.key : colours.line;
    context.lineWidth = isHere || isMarked ? 2.5 : 1;
    context.setLineDash(isMarked && !isHere ? [5, 3] : []);
    context.strokeRect(x + 0.5, y + 0.5, grid.size - 1, grid.size - 1);
    context.setLineDash([]);
    context.fillStyle = isHere || isMarked ? colours.ink : colours.soft;
    context.fillText(what.names[head] ?? '', x, y + grid.size + 3);
  });
};

/** One row as bars: their height is the root of attention; of tokens that share a pixel, the largest. */
const bars = (context: CanvasRenderingContext2D, row: Uint8Array, x: number, y: number, size: number, colours: Colours): void => {
  context.fillStyle = colours.bg;
  context.fillRect(x, y, size, size);
  context.fillStyle = colours.heat;
  const wide = Math.max(1, size / row.length);
  for (let at = 0; at < row.length; at++) {
    const tall = ((row[at] ?? 0) / 255) * (size - 2);
    if (tall >= 0.5) context.fillRect(x + (at * size) / row.length, y + size - 1 - tall, wide > 3 ? wide - 1 : wide, tall);
  }
};
