// What every canvas needs: the theme's colours, and a word when theme, paper or width change what is to be painted.
import type { RefObject } from 'preact';
import { useEffect, useState } from 'preact/hooks';

const COLOURS = ['bg', 'heat', 'band', 'ink', 'soft', 'line', 'query', 'key', 'accent'] as const;
export type Colours = Record<(typeof COLOURS)[number], string>;

/** The theme's colours as the browser resolves them: a canvas cannot read variables. */
export const coloursOf = (element: Element): Colours => {
  const probe = document.createElement('i');
  element.append(probe);
  const made = Object.fromEntries(
    COLOURS.map((name) => {
      probe.style.color = `var(--${name})`;
      return [name, getComputedStyle(probe).color];
    }),
  ) as Colours;
  probe.remove();
  return made;
};

export const rgb = (colour: string): number[] => (colour.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);

/** A number that grows whenever the canvas has to be painted anew. */
export const useRepaint = (canvas: RefObject<HTMLCanvasElement | null>): number => {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const element = canvas.current;
    const again = () => setTurn((n) => n + 1);
    const page = element?.closest('.headwise');
    const themes = new MutationObserver(again);
    if (page) themes.observe(page, { attributes: true, attributeFilter: ['data-theme'] });
    const sizes = new ResizeObserver(again);
    if (element) sizes.observe(element);
    const queries = [matchMedia('(prefers-color-scheme: dark)'), matchMedia('print')];
    for (const query of queries) query.addEventListener('change', again);
    return () => {
      themes.disconnect();
      sizes.disconnect();
      for (const query of queries) query.removeEventListener('change', again);
    };
  }, []);
  return turn;
};

/** 256 steps from nothing to all, as the theme colours them. */
export const ramp = (colours: Colours): Uint32Array => {
  const [low, high] = [rgb(colours.bg), rgb(colours.heat)];
  const made = new Uint32Array(256);
  const bytes = new Uint8Array(made.buffer);
  for (let v = 0; v < 256; v++) {
    for (let i = 0; i < 3; i++) bytes[4 * v + i] = Math.round((low[i] ?? 0) + (((high[i] ?? 0) - (low[i] ?? 0)) * v) / 255);
    bytes[4 * v + 3] = 255;
  }
  return made;
};
