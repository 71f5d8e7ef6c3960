// What every page has around its content: the theme switch, the tooltip, and paper on which nothing stays folded.
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Glossary } from './explained';
import type { Pin } from './pins';
import { pinned, Pins } from './pins';
import { numbersOf, Tip, Voice, Voices } from './tip';

type Theme = 'light' | 'dark';

export const Page = ({ kind, themeKey, glossary, children }: { kind: string; themeKey?: string; glossary: Glossary | null | undefined; children: ComponentChildren }) => {
  const [theme, setTheme] = useState<Theme | null>(null);
  const root = useRef<HTMLDivElement>(null);
  const voice = useMemo(() => new Voice(), []);
  const [pins, setPins] = useState<readonly Pin[]>([]);
  voice.glossary = glossary;
  voice.pin = ({ text, element }) => element && setPins((before) => pinned(before, { text, element }));
  const numbers = useMemo(() => numbersOf(voice), [voice]);
  const turn = () => setTheme((theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark' ? 'light' : 'dark');
  const last = useRef(turn);
  last.current = turn;
  useEffect(() => {
    if (!themeKey) return;
    const press = (event: KeyboardEvent) => {
      const typed = event.target instanceof HTMLElement && event.target.matches('input:not([type=checkbox]), textarea, select');
      if (typed || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === themeKey) last.current();
      if (event.key === 'p' && voice.now) voice.pin(voice.now);
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, [themeKey]);
  useEffect(() => {
    const opened = new Set<HTMLDetailsElement>();
    const before = () =>
      root.current?.querySelectorAll<HTMLDetailsElement>('details:not([open])').forEach((one) => {
        one.open = true;
        opened.add(one);
      });
    const after = () => {
      opened.forEach((one) => {
        one.open = false;
      });
      opened.clear();
    };
    addEventListener('beforeprint', before);
    addEventListener('afterprint', after);
    return () => {
      removeEventListener('beforeprint', before);
      removeEventListener('afterprint', after);
    };
  }, []);
  return (
    <Voices.Provider value={voice}>
      <div class={`headwise ${kind}${pins.length ? ' has-pins' : ''}`} data-theme={theme ?? undefined} ref={root} {...numbers}>
        <button type="button" class="small theme" aria-label="light / dark: switch the colours of the page" onClick={turn}>
          light / dark
        </button>
        {children}
        <Pins pins={pins} onPins={setPins} />
        <Tip />
      </div>
    </Voices.Provider>
  );
};
