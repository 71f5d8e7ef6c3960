// A panel of a page, which can fill the window.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

export const Figure = ({ children, ...rest }: { class?: string; hidden?: boolean; children: ComponentChildren }) => {
  const [filled, setFilled] = useState(false);
  const figure = useRef<HTMLElement>(null);
  useEffect(() => {
    figure.current?.closest('.headwise')?.toggleAttribute('data-fills', filled);
    if (!filled) return;
    // Escape closes one thing: this one, before any other hears of it.
    const escape = (event: KeyboardEvent) => {
      if (event.key !== 'Escape') return;
      event.stopImmediatePropagation();
      setFilled(false);
    };
    addEventListener('keydown', escape, true);
    return () => removeEventListener('keydown', escape, true);
  }, [filled]);
  return (
    <figure {...rest} ref={figure} data-filled={filled || undefined}>
      {children}
      <button type="button" class="small fills" aria-label="Fill the window" aria-pressed={filled} title={filled ? 'back to its place (Escape)' : 'fill the window'} onClick={() => setFilled(!filled)}>
        {filled ? '⤡' : '⤢'}
      </button>
    </figure>
  );
};
