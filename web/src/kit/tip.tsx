// One tooltip per mounted page: what an element says while the pointer is over it or it has the focus.
import { createContext } from 'preact';
import type { Glossary } from './explained';
import { saidOf } from './explained';
import { useContext, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';

export interface Said {
  text: string;
  x: number;
  y: number;
  /** The number that it is about. */
  element?: Element;
}

/** Whoever speaks tells the one who shows: so a moving pointer redraws the tooltip and nothing else. */
export class Voice {
  glossary: Glossary | null | undefined;
  /** What is being said. */
  now: Said | null = null;
  pin: (said: Said) => void = () => undefined;
  private hear: ((said: Said | null) => void) | null = null;
  listen(hear: (said: Said | null) => void): () => void {
    this.hear = hear;
    return () => {
      this.hear = null;
    };
  }
  say(said: Said | null): void {
    this.now = said;
    this.hear?.(said);
  }
}

const under = (box: DOMRect): { x: number; y: number } => ({ x: box.left + Math.min(box.width / 2, 120), y: box.bottom - 8 });

/** Handlers for a whole page: numbers in it explain themselves. */
export const numbersOf = (voice: Voice) => {
  const find = (event: Event): [Element, string] | null => {
    const element = (event.target as Element).closest('[data-num],[data-say]');
    const text = saidOf(element, voice.glossary);
    return element && text ? [element, text] : null;
  };
  const leave = (event: Event) => find(event) && voice.say(null);
  return {
    onPointerOver: (event: PointerEvent) => {
      const found = find(event);
      if (found) voice.say({ text: found[1], element: found[0], x: event.clientX, y: event.clientY });
    },
    onPointerOut: leave,
    onFocusIn: (event: FocusEvent) => {
      const found = find(event);
      if (found && (event.target as Element).matches(':focus-visible')) voice.say({ text: found[1], element: found[0], ...under(found[0].getBoundingClientRect()) });
    },
    onFocusOut: leave,
    // A click or Enter keeps what is said; what has something of its own to do when it is clicked keeps that.
    onClick: (event: MouseEvent) => {
      const found = (event.target as Element).closest('button, a, label, input, summary') ? null : find(event);
      if (found) voice.pin({ text: found[1], element: found[0], x: 0, y: 0 });
    },
    onKeyDown: (event: KeyboardEvent) => {
      const found = event.key === 'Enter' && !(event.target as Element).matches('button') ? find(event) : null;
      if (found && found[0] === event.target) voice.pin({ text: found[1], element: found[0], x: 0, y: 0 });
    },
  };
};

export const Voices = createContext(new Voice());

/** Handlers that show a text for an element. */
export const useTip = () => {
  const voice = useContext(Voices);
  return useMemo(() => {
    const quiet = () => voice.say(null);
    return {
      quiet,
      at: (event: PointerEvent, text: string) => voice.say({ text, x: event.clientX, y: event.clientY }),
      on: (text: string) => ({
        onPointerMove: (event: PointerEvent) => voice.say({ text, x: event.clientX, y: event.clientY }),
        onPointerLeave: quiet,
        onFocus: (event: FocusEvent) => {
          const target = event.currentTarget as Element;
          // A click focuses as well, but then the pointer is there to speak.
          if (!target.matches(':focus-visible')) return;
          voice.say({ text, ...under(target.getBoundingClientRect()) });
        },
        onBlur: quiet,
      }),
    };
  }, [voice]);
};

export const Tip = () => {
  const voice = useContext(Voices);
  const [said, setSaid] = useState<Said | null>(null);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => voice.listen(setSaid), [voice]);
  useEffect(() => {
    const escape = (event: KeyboardEvent) => event.key === 'Escape' && setSaid(null);
    addEventListener('keydown', escape);
    return () => removeEventListener('keydown', escape);
  }, []);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || !said) return;
    const { width, height } = element.getBoundingClientRect();
    element.style.left = `${Math.max(4, Math.min(said.x + 14, innerWidth - width - 8))}px`;
    element.style.top = `${Math.max(4, said.y + 16 + height > innerHeight ? said.y - height - 12 : said.y + 16)}px`;
  }, [said]);
  return (
    <div class="tip" role="status" ref={box} hidden={!said}>
      {said?.text}
    </div>
  );
};
