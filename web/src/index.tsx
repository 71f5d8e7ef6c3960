// The one way in: a document is drawn into an element. A saved page, an app and a notebook call the same function.
import { render } from 'preact';
import type { CircuitDocument } from './circuit/document';
import { CircuitPage } from './circuit/page';
import type { ExplanationDocument } from './explanation/document';
import { ExplanationPage } from './explanation/page';
import type { Host } from './host';
import './style/index.css';

/** What a notebook's widget is. */
export { widget } from './widget';

/** What the app's own script, which is in no saved page, takes from here. */
export { inside } from 'headwise:inside';

export type Document = CircuitDocument | ExplanationDocument;

export interface Mounted {
  /** Draw another document in the same place. */
  update(data: Document): void;
  unmount(): void;
}

const isCircuit = (data: Document): data is CircuitDocument => 'kind' in data && data.kind === 'headwise-circuit';

let turn = 0;

const Drawn = ({ data, host }: { data: Document; host: Host }) => (isCircuit(data) ? <CircuitPage data={data} host={host} /> : <ExplanationPage data={data} host={host} />);

export const mount = (element: Element, data: Document, host: Host = {}): Mounted => {
  const draw = (next: Document) => {
    turn += 1;
    // A new key: what was chosen or pinned in one document means nothing in the next.
    render(<Drawn key={turn} data={next} host={host} />, element);
  };
  draw(data);
  return { update: draw, unmount: () => render(null, element) };
};

/** A saved page: its document is in the page itself. */
export const open = (): void => {
  const [source, place] = ['headwise-data', 'headwise'].map((id) => document.getElementById(id));
  if (source && place) mount(place, JSON.parse(source.textContent ?? '') as Document);
};
