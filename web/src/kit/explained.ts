// Numbers that explain themselves: what is pointed at or has the focus is looked up in the page's glossary, which Python
// wrote, by the name that the page gives it.
export interface Glossary {
  numbers: Readonly<Record<string, { says: string; formula: string; source: string }>>;
  captions: Readonly<Record<string, string>>;
  terms: readonly { term: string; formula: string; words: string }[];
}

/** ``v`` is the number itself, ``error`` how far the model's own is from it; the others are letters of its formula. */
export type Values = Readonly<Record<string, number | null | undefined>>;

const figures = (v: number): string => String(Number(v.toPrecision(4))).replace('-', '−');

/** Attributes of an element that shows a number; a place where Tab stops, unless something around it is one. */
export const explained = (label: string, values: Values = {}, stop = true) => ({ 'data-num': label, 'data-with': JSON.stringify(values), ...(stop ? { tabIndex: 0 } : {}) });

/** What is said of an element; nothing where it is no number that is known. */
export const saidOf = (element: Element | null, glossary: Glossary | null | undefined): string => {
  const label = element?.getAttribute('data-num') ?? '';
  // A column of the table of writers goes by the number of its channel.
  const known = glossary?.numbers[label.replace(/^(channel .*|others)$/, 'part')];
  if (!known) return element?.getAttribute('data-say') ?? '';
  const { v, error, ...letters } = JSON.parse(element?.getAttribute('data-with') ?? '{}') as Record<string, number | null>;
  const filled = Object.entries(letters).reduce((text, [name, value]) => (value === null ? text : text.replace(new RegExp(`(?<![\\w′])${name}(?!\\w)`, 'g'), figures(value))), known.formula);
  const is = v === undefined || v === null ? '' : ` = ${figures(v)}`;
  return [
    label + (known.formula ? '' : is),
    known.says,
    known.formula && `${known.formula}${filled === known.formula ? '' : ` = ${filled}`}${is}`,
    known.source && `Source: ${known.source}.`,
    // What was captured is the model's own; what is only computed has been held against nothing.
    /^computed/.test(known.source) && typeof error !== 'number' && 'Shown, not tested in a changed model.',
    error === undefined || error === null ? '' : `Error against the model: ${error.toExponential(1).replace('-', '−')}.`,
  ]
    .filter(Boolean)
    .join('\n');
};
