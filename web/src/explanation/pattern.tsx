// Every row of the head at once, on a canvas: one pixel a cell, in very long prompts one pixel a block.
import { useContext, useEffect, useId, useMemo, useRef, useState } from 'preact/hooks';
import type { Host } from '../host';
import type { Colours } from '../kit/canvas';
import { Figure } from '../kit/figure';
import { coloursOf, rgb, useRepaint } from '../kit/canvas';
import { Here } from '../kit/here';
import { Numbers } from '../kit/numbers';
import { useTip } from '../kit/tip';
import { Tok, Tokens, useTokenText } from '../kit/tokens';
import { number } from '../numbers';
import { short, visible } from '../text';
import type { Attention } from './attention';
import type { GrowingDocument } from './document';

const NAMED = 32;
const PIXELS = 1024;
const LISTED = 120;
const TOP = 9;  // half a line of text above the first row
const FONT = '12px ui-monospace, Menlo, Consolas, monospace';
const imageOf = (attention: Attention, T: number, colours: Colours): HTMLCanvasElement => {
  const block = attention.picture?.block ?? Math.ceil(T / PIXELS);
  const n = Math.ceil(T / block);
  const image = document.createElement('canvas');
  image.width = image.height = n;
  const context = image.getContext('2d');
  if (!context) return image;
  const [low, high, never] = [rgb(colours.bg), rgb(colours.heat), rgb(colours.band)];
  const pixels = context.createImageData(n, n);
  for (let r = 0; r < n; r++)
    for (let c = 0; c < n; c++) {
      let a = c > r ? -1 : (attention.picture?.at(r, c) ?? 0);
      if (a === 0 && !attention.picture) for (let q = r * block; q < Math.min(T, (r + 1) * block); q++) for (let k = c * block; k < Math.min(q + 1, (c + 1) * block); k++) a = Math.max(a, attention.at(q, k));
      const shade = Math.sqrt(Math.max(0, a));
      for (let i = 0; i < 3; i++) pixels.data[4 * (r * n + c) + i] = a < 0 ? (never[i] ?? 0) : Math.round((low[i] ?? 0) + ((high[i] ?? 0) - (low[i] ?? 0)) * shade);
      pixels.data[4 * (r * n + c) + 3] = 255;
    }
  context.putImageData(pixels, 0, 0);
  return image;
};

type Spot = [query: number, key: number];

/** The strongest cell that is held in a direction: of the row to the left or right, of the column above or below. */
const strongestFrom = (attention: Attention, T: number, [q, k]: Spot, [down, right]: Spot): Spot => {
  let best: Spot = [q, k];
  let most = -1;
  for (let [y, x] = [q + down, k + right]; y >= 0 && x >= 0 && y < T && x <= y; y += down, x += right) if (attention.holds(y, x) && attention.at(y, x) > most) [most, best] = [attention.at(y, x), [y, x]];
  return best;
};
interface Frame {
  pad: number;
  side: number;
}

interface PatternProps {
  data: GrowingDocument;
  attention: Attention;
  row: number;
  onRow: (row: number) => void;
  host: Host;
}

export const Pattern = ({ data, attention, row, onRow, host }: PatternProps) => {
  const tokens = useContext(Tokens);
  const T = tokens.length;
  const canvas = useRef<HTMLCanvasElement>(null);
  const frame = useRef<Frame>({ pad: 0, side: 640 });
  const [cursor, setCursor] = useState<Spot | null>(null);
  const turn = useRepaint(canvas);
  const here = useId();
  const tip = useTip();
  const tokenText = useTokenText();

  const said = (query: number, key: number) => `${attention.holds(query, key) ? '' : 'at most '}${number(attention.at(query, key), 4)}`;

  const image = useRef<{ key: string; made: HTMLCanvasElement } | null>(null);
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext('2d');
    if (!element || !context || !element.clientWidth) return;
    const colours = coloursOf(element.parentElement ?? element);
    const key = Object.values(colours).join();
    if (image.current?.key !== key) image.current = { key, made: imageOf(attention, T, colours) };
    frame.current = paint(element, context, image.current.made, colours, data, row, cursor);
  }, [data, attention, row, cursor, turn]);

  const over = (event: MouseEvent): Spot | null => {
    const box = canvas.current?.getBoundingClientRect();
    if (!box) return null;
    const { pad, side } = frame.current;
    const [q, k] = [Math.floor(((event.clientY - box.top - TOP) / side) * T), Math.floor(((event.clientX - box.left - pad) / side) * T)];
    return q < 0 || k < 0 || q >= T || k >= T ? null : [q, k];
  };
  const point = (event: PointerEvent) => {
    const spot = over(event);
    setCursor(spot);
    if (spot) tip.at(event, `${tokenText(spot[0])} ← ${tokenText(spot[1])}\n${spot[1] > spot[0] ? 'a later token: not visible' : `attention ${said(...spot)}`}`);
    else tip.quiet();
  };
  /** A cell that is clicked is explained where somebody can explain it; else its row is shown. */
  const choose = ([query, key]: Spot) => {
    if (host.explain && key <= query) host.explain({ head: data.head, query, key });
    else onRow(query);
  };
  const walk = (event: KeyboardEvent) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const [q, k] = cursor ?? [data.query, data.key];
    if (event.key === 'Enter') choose([q, k]);
    if (!by) return;
    event.preventDefault();
    if (event.shiftKey) return setCursor(strongestFrom(attention, T, [q, k], by as Spot));
    const within = (v: number) => Math.max(0, Math.min(T - 1, v));
    setCursor([within(q + (by[0] as number)), within(k + (by[1] as number))]);
  };
  const strongest = useMemo(() => {
    const found: [number, number, number][] = [];
    for (let q = 0; q < T; q++)
      for (const k of attention.keys(q)) {
        const a = attention.at(q, k);
        if (a >= 0.02) found.push([q, k, a]);
      }
    return found.sort((a, b) => b[2] - a[2]).slice(0, LISTED);
  }, [attention, T]);
  const listed = useMemo(
    () => <Numbers title={`Numbers of the ${strongest.length} strongest cells`} columns={['query', 'key', 'attention']} rows={strongest.map(([query, key, a]) => [<Tok at={query} />, <Tok at={key} />, a])} />,
    [strongest],
  );
  const [q, k] = cursor ?? [data.query, data.key];
  return (
    <section class="pattern">
      <h2>The whole head</h2>
      <p class="soft">
        Every row of {data.head} in this prompt. Point at a cell, or use the arrow keys, with Shift to the strongest cell that way; click, or press Enter, to {host.explain ? 'ask why it is there' : 'show its row in the prompt'}.
      </p>
      {attention.picture ? (
        <p class="note long">
          A prompt of {number(T, 0)} tokens has more cells than a page can hold. The picture shows all of them, the strongest of each {attention.picture.block} × {attention.picture.block}. In numbers this page holds {attention.says}; of any other cell it says what it is at most.
        </p>
      ) : null}
      <Figure class="map">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="grid"
          aria-rowcount={T}
          aria-activedescendant={here}
          aria-label={`Attention of ${data.head}: queries downwards, keys to the right; arrow keys move, Enter ${host.explain ? 'explains the cell' : 'shows the row'}`}
          onPointerMove={point}
          onPointerLeave={() => {
            tip.quiet();
            setCursor(null);
          }}
          onClick={(event) => {
            const spot = over(event);
            if (spot) choose(spot);
          }}
          onKeyDown={walk}
          onBlur={() => setCursor(null)}
        >
          <Here id={here}>{`${tokenText(q)} ← ${tokenText(k)}: ${k > q ? 'not visible' : said(q, k)}`}</Here>
        </canvas>
        <div>
          <div class="spot" aria-live="polite">
            <div class="soft">{cursor ? 'this cell' : 'the explained cell'}</div>
            <b>{k > q ? 'not visible' : said(q, k)}</b>
            <div>
              query <Tok at={q} most={24} />
            </div>
            <div>
              key <Tok at={k} most={24} />
            </div>
          </div>
          <div class="legend">
            <span>
              <i class="ramp" />0 to 1 (root scale)
            </span>
            <span>
              <span class="key">▢</span> explained cell
            </span>
            <span>═ row shown in the prompt</span>
          </div>
        </div>
        {listed}
      </Figure>
    </section>
  );
};

const paint = (element: HTMLCanvasElement, c: CanvasRenderingContext2D, image: HTMLCanvasElement, colours: Colours, data: GrowingDocument, row: number, cursor: Spot | null): Frame => {
  const { tokens } = data;
  const T = tokens.length;
  const named = T <= NAMED;
  const ratio = Math.max(1, Math.min(3, devicePixelRatio || 1));
  const wide = element.clientWidth;
  c.font = FONT;
  const pad = named ? Math.min(150, wide / 3, 26 + Math.max(...tokens.map((text) => c.measureText(short(visible(text), 14)).width))) : 40;
  const side = wide - pad - TOP - 4;
  element.width = element.height = wide * ratio;
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.imageSmoothingEnabled = false;
  c.drawImage(image, pad, TOP, side, side);
  c.strokeStyle = colours.line;
  c.strokeRect(pad, TOP, side, side);
  const step = side / T;
  const mark = (i: number): string => (i === data.query && i === data.key ? colours.ink : i === data.query ? colours.query : i === data.key ? colours.key : colours.soft);
  c.font = FONT;
  const every = T <= 100 ? 10 : T <= 500 ? 50 : T <= 1000 ? 100 : 10 ** Math.ceil(Math.log10(T / 10));
  tokens.forEach((token, i) => {
    if (!named && i % every) return;
    const text = named ? short(visible(token), 14) : String(i);
    c.fillStyle = named ? mark(i) : colours.soft;
    c.textAlign = 'right';
    c.textBaseline = 'middle';
    c.fillText(text, pad - 6, TOP + (i + 0.5) * step);
    c.save();
    c.translate(pad + (i + 0.5) * step, side + TOP + 7);
    if (named) c.rotate(-Math.PI / 2);
    else c.textAlign = 'center';
    c.fillText(text, 0, named ? 0 : 8);
    c.restore();
  });
  const box = ([q, k]: Spot, colour: string, grow: number) => {
    c.strokeStyle = colour;
    c.lineWidth = 2;
    c.strokeRect(pad + k * step - grow, TOP + q * step - grow, step + 2 * grow, step + 2 * grow);
  };
  c.fillStyle = colours.ink;
  c.globalAlpha = 0.5;
  c.fillRect(pad, TOP + row * step, side, 1);
  c.fillRect(pad, TOP + (row + 1) * step - 1, side, 1);
  c.globalAlpha = 1;
  box([data.query, data.key], colours.key, Math.max(1, 5 - step / 2));
  if (cursor) box(cursor, colours.ink, Math.max(0.5, 4 - step / 2));
  return { pad, side };
};
