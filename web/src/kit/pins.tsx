// Numbers that were pinned: what is said of them stays open beside the page.
export interface Pin {
  text: string;
  element: Element;
}

export const pinned = (pins: readonly Pin[], { text, element }: Pin): Pin[] => {
  const others = pins.filter((one) => one.text !== text);
  return others.length < pins.length ? others : [...pins, { text, element }];
};

/** Patterns are sent in whole numbers, so the same attention differs a little from table to table. */
const SAME = 1e-4;
const valueOf = (element: Element): number => {
  const { v } = JSON.parse(element.getAttribute('data-with') ?? '{}') as Record<string, number | null>;
  return v ?? Number.NaN;
};

/** The cell of a table that has the same number; where there is none, the number itself. */
const homeOf = (element: Element): HTMLElement => {
  const label = element.getAttribute('data-num') ?? '';
  const cells = [...(element.closest('.headwise')?.querySelectorAll('td[data-num]') ?? [])];
  const same = cells.find((one) => one.getAttribute('data-num') === label && Math.abs(valueOf(one) - valueOf(element)) < SAME);
  return (same ?? element) as HTMLElement;
};

const show = (pin: Pin) => {
  const home = homeOf(pin.element);
  for (let at = home.closest('details'); at; at = at.parentElement?.closest('details') ?? null) at.open = true;
  home.scrollIntoView({ block: 'center', inline: 'nearest' });
  home.classList.add('found');
  setTimeout(() => home.classList.remove('found'), 2500);
};

export const Pins = ({ pins, onPins }: { pins: readonly Pin[]; onPins: (pins: readonly Pin[]) => void }) =>
  pins.length ? (
    <aside class="pins" aria-label="Pinned numbers">
      {pins.map((pin) => {
        const [name = '', ...rest] = pin.text.split('\n');
        return (
          <section key={pin.text}>
            <h2>{name}</h2>
            <p>{rest.join('\n')}</p>
            <button type="button" class="small" aria-label={`Show where ${name} is`} disabled={!pin.element.isConnected} onClick={() => show(pin)}>
              {pin.element.isConnected ? 'show where' : 'no longer shown'}
            </button>{' '}
            <button type="button" class="small" aria-label={`Unpin ${name}`} onClick={() => onPins(pins.filter((one) => one !== pin))}>
              unpin
            </button>
          </section>
        );
      })}
    </aside>
  ) : null;
