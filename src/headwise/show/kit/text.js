// Text on a page: white space and characters without a shape are made visible, and none of them turns its neighbours around.
const shapeless = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/u;
const joiner = /[\u200c\u200d]/;
const nameOf = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
// Prose: a prompt, a note, a model's name.
const readable = (text) => [...text].map((c) => shapeless.test(c) ? nameOf(c) : c).join('');
// A token: every character that it is made of can be told.
const visible = (text) => {
  if (text === '') return '∅';
  const alone = [...text].every((c) => shapeless.test(c) || joiner.test(c));
  return [...text].map((c, i, all) => {
    const code = c.codePointAt(0);
    if (c === '\n') return '⏎';
    if (c === '\t') return '⇥';
    if (c === ' ') return i === 0 || i === all.length - 1 || all[i - 1] === ' ' ? '·' : ' ';
    if (c === '\u00a0') return '⍽';
    if (code < 32) return String.fromCodePoint(0x2400 + code);
    // Joiners inside an emoji or a word do their work; what would turn the direction of the page is named.
    if (shapeless.test(c) || (alone && joiner.test(c))) return nameOf(c);
    return c;
  }).join('');
};
const short = (text, most = 16) => { const all = [...text]; return all.length > most ? `${all.slice(0, most - 1).join('')}…` : text; };
const isolated = (text) => `\u2068${text}\u2069`;  // right-to-left text must not reorder its neighbours
