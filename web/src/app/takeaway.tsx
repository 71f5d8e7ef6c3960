// Everything that is shown can be taken along: as a link, a command, Python, and one page that opens offline.
import { useState } from 'preact/hooks';
import { saidOf } from '../kit/explained';
import { readable } from '../text';
import type { Shared } from './app';
import { troubleOf } from './app';
import { parse, planned } from './edits';
import { namesIn } from './named-runs';
import { alignPairs, listOf, urlOf } from './place';
import type { PageGlossary, PlaceSaid, PromptRead } from './wire';

const FORMS = { json: 'JSON', py: 'Python', graphml: 'GraphML' };
export type Form = keyof typeof FORMS;

interface TakeawayProps extends Pick<Shared, 'server' | 'place' | 'state'> {
  /** Where the server has what is shown as files, up to their ends: then it has a page of its own. */
  made?: string | null;
  forms?: readonly Form[];
}

export const Takeaway = ({ server, place, state, made = null, forms = [] }: TakeawayProps) => {
  const [said, setSaid] = useState('');
  // A prompt that the address only names is on this machine alone.
  const here = /[?&]x2?=/.test(urlOf(place));
  const copy = (what: string, text: string) =>
    server.copy(text).then(
      () => setSaid(`${what} copied`),
      () => setSaid(`the browser does not let the page copy: ${text}`),
    );
  const ask = async (what: 'command' | 'python') => {
    const { screen, text, chat, head, query, key, answer, wrong, tau, draws, seed, features, dose, other, run, root, opened } = place;
    const edits = parse(place.edits);
    try {
      const ids = new Map<string, string>();
      for (const one of edits) if (one.kind === 'pa') ids.set(one.name, (await server.post<PromptRead>('/api/prompts', { tab: server.tab, text: one.name, chat })).id);
      const got = await server.post<PlaceSaid>('/api/takeaway', { screen, text, chat, head, ...(screen === 'heads' ? { [place.to ? 'key' : 'query']: place.row } : { query, key }), answer, wrong, tau, draws, seed, features, names: namesIn(place, state), edits: planned(edits, ids), dose, other, align: alignPairs(place.align), root: root || null, opened: listOf(opened), run });
      await copy(what === 'python' ? 'Python' : what, got[what]);
    } catch (error) {
      setSaid(troubleOf(error)?.error ?? '');
    }
  };
  const name = [place.screen, place.head, place.query, place.key].filter((one) => one !== null).join('-');
  const save = (form: string) => server.save(`${made}.${form}`, `${name}.${form}`).catch((error) => setSaid(troubleOf(error)?.error ?? ''));
  const page = () => (made && !place.edits && !place.names ? save('html') : server.keep(snapshot(state?.glossary), `${name}.html`));
  return (
    <span class="takeaway" role="group" aria-label="Take this along">
      <button type="button" class="small" onClick={() => copy(here ? 'link (it opens on this machine only: save the page to pass it on)' : 'link', server.address.whole(urlOf(place)))}>
        copy link
      </button>
      <button type="button" class="small" onClick={() => ask('command')}>
        copy command
      </button>
      <button type="button" class="small" onClick={() => ask('python')}>
        copy Python
      </button>
      <button type="button" class="small" onClick={page}>
        save page
      </button>
      {made === null
        ? null
        : forms.map((form) => (
            <button type="button" class="small" onClick={() => save(form)}>
              save {FORMS[form]}
            </button>
          ))}
      <span class="soft" role="status">
        {said}
      </span>
    </span>
  );
};

/** The screen as one page that can do nothing but show itself; its numbers keep what is said of them. */
const snapshot = (glossary: PageGlossary | undefined): string => {
  const root = document.querySelector('.headwise') as HTMLElement;
  // A document that nobody looks at: it loads nothing.
  const made = document.implementation.createHTMLDocument(readable(document.title));
  const copy = made.importNode(root, true);
  const drawn = [...root.querySelectorAll('canvas')];
  copy.querySelectorAll('canvas').forEach((one, i) => {
    const image = made.createElement('img');
    image.src = drawn[i]?.toDataURL() ?? '';
    image.alt = one.getAttribute('aria-label') ?? '';
    image.width = drawn[i]?.clientWidth ?? 0;
    one.replaceWith(image);
  });
  copy.querySelectorAll('[data-num],[data-say]').forEach((one) => one.setAttribute('title', saidOf(one, glossary)));
  // What was chosen and typed is no part of the markup.
  const chosen = [...root.querySelectorAll<HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement>('input, select, textarea')];
  copy.querySelectorAll('input, select, textarea').forEach((one, i) => {
    const { value } = chosen[i] ?? { value: '' };
    one.querySelectorAll('option').forEach((option) => option.toggleAttribute('selected', option.value === value));
    if (one.tagName === 'TEXTAREA') one.textContent = value;
    if (one.tagName === 'INPUT') one.setAttribute('value', value);
    one.toggleAttribute('checked', (chosen[i] as HTMLInputElement).checked === true);
  });
  // Its pictures are of these colours.
  copy.dataset['theme'] = root.dataset['theme'] ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  copy.querySelectorAll('iframe, .app-bar nav, .takeaway, .theme, .tip, .fills').forEach((one) => one.remove());
  copy.querySelectorAll('button, input, select, textarea').forEach((one) => one.setAttribute('disabled', ''));
  made.body.className = document.body.className;
  made.body.append(copy);
  const style = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText)).join('\n');
  // As text: here a style of its own would be refused.
  return `<!doctype html>\n${new XMLSerializer().serializeToString(made.documentElement).replace('</head>', () => `<style>${style}</style></head>`)}`;
};
