// Text on a page: white space and characters without a shape are made visible, and none of them turns its neighbours
// around.
const shapeless = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/u;
const joiner = /[\u200c\u200d]/;

const nameOf = (c: string): string => `U+${(c.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;

/** Prose: a prompt, a note, a model's name. */
export const readable = (text: string): string => [...text].map((c) => (shapeless.test(c) ? nameOf(c) : c)).join('');

/** A token: every character that it is made of can be told. */
export const visible = (text: string): string => {
  if (text === '') return '∅';
  const all = [...text];
  const alone = all.every((c) => shapeless.test(c) || joiner.test(c));
  return all
    .map((c, i) => {
      const code = c.codePointAt(0) ?? 0;
      if (c === '\n') return '⏎';
      if (c === '\t') return '⇥';
      if (c === ' ') return i === 0 || i === all.length - 1 || all[i - 1] === ' ' ? '·' : ' ';
      if (c === '\u00a0') return '⍽';
      if (code < 32) return String.fromCodePoint(0x2400 + code);
      // Joiners inside an emoji or a word do their work; what would turn the direction of the page is named.
      return shapeless.test(c) || (alone && joiner.test(c)) ? nameOf(c) : c;
    })
    .join('');
};

export const short = (text: string, most = 16): string => {
  const all = [...text];
  return all.length > most ? `${all.slice(0, most - 1).join('')}…` : text;
};

/** For text inside other text: right-to-left script must not reorder its neighbours. */
export const isolated = (text: string): string => `\u2068${text}\u2069`;

/** Marks of white space, apart from the characters around them. */
export const pieces = (text: string): { text: string; space: boolean }[] =>
  visible(text)
    .split(/([·⏎⇥⍽]+)/)
    .filter(Boolean)
    .map((part) => ({ text: part, space: /^[·⏎⇥⍽]+$/.test(part) }));

export const plural = (n: number, word: string): string => `${n} ${word}${n === 1 ? '' : 's'}`;

/** "a, b and c". */
export const listed = (words: readonly string[]): string =>
  words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
