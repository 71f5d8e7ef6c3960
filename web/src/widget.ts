// A part in a cell of a notebook: its document is a trait of the Python object, and what it asks for goes back as one.
import type { Document } from './index';
import { mount } from './index';
import type { Cell, Host } from './host';

/** What anywidget gives of the Python object. */
interface Traits {
  get(name: 'document'): Document;
  get(name: 'live'): boolean;
  get(name: 'said'): string;
  set(name: 'asked', value: Cell & { number: number }): void;
  save_changes(): void;
  on(event: string, hear: () => void): void;
  off(event: string, hear: () => void): void;
}

/** The widget, styled by ``style`` alone: in a shadow root a notebook's own style does not reach it, nor ours the rest. */
export const widget = (style: string) => ({
  render({ model, el }: { model: Traits; el: HTMLElement }): () => void {
    const made = (tag: string) => el.ownerDocument.createElement(tag);
    const [inside, look, said, place] = [made('div'), made('style'), made('p'), made('div')];
    look.textContent = style;
    said.setAttribute('role', 'status');
    el.append(inside);
    inside.attachShadow({ mode: 'open' }).append(look, said, place);
    let number = 0;
    // The number makes the same cell, asked about twice, two questions.
    const explain = (cell: Cell) => {
      number += 1;
      model.set('asked', { ...cell, number });
      model.save_changes();
    };
    const host: Host = model.get('live') ? { explain } : {};
    const mounted = mount(place, model.get('document'), host);
    const hear: [string, () => void][] = [
      ['change:document', () => mounted.update(model.get('document'))],
      [
        'change:said',
        () => {
          said.textContent = model.get('said');
        },
      ],
    ];
    hear.forEach(([event, one]) => model.on(event, one));
    return () => {
      hear.forEach(([event, one]) => model.off(event, one));
      mounted.unmount();
    };
  },
});
