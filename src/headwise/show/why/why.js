// The page's base: the data, small builders that only ever set text, the links between figures, and the prompt.
const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);
const T = data.tokens.length, root = document.documentElement;

// --- builders: text goes in as text nodes, so nothing in a prompt can become markup -------------------------------
const el = (tag, cls, ...kids) => {
  const made = document.createElement(tag);
  if (cls) made.className = cls;
  made.append(...kids.filter((kid) => kid !== null && kid !== undefined && kid !== ''));
  return made;
};
const svg = (tag, attributes, parent, text) => {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
};
const number = (v, digits = 3) => v === null || v === undefined ? '–' : Math.abs(v) >= 0.5 * 10 ** -digits || v === 0 ? v.toFixed(digits) : v.toExponential(0);
const signed = (v, digits = 2) => v === null ? '–' : (v > 0 ? '+' : v < 0 ? '−' : '') + Math.abs(v).toFixed(digits);
const fixed = (v, digits = 3) => v.toFixed(digits).replace('-', '−');
const percent = (v) => v === null ? '–' : `${(100 * v).toFixed(Math.abs(v) < 0.095 ? 1 : 0)} %`;
const sum = (list) => list.reduce((a, b) => a + b, 0);
const plural = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;

// --- tokens ---------------------------------------------------------------------------------------------------------
const tokenText = (i, most = 24) => `${isolated(short(visible(data.tokens[i] ?? '?'), most))} (${i})`;
const pieces = (text) => visible(text).split(/([·⏎⇥⍽]+)/).filter(Boolean).map((part) => /^[·⏎⇥⍽]+$/.test(part) ? el('span', 'ws', part) : part);
const tokenNode = (i, most = 40) => {
  const box = el('bdi', 'tok', ...pieces(short(data.tokens[i] ?? '?', most)));
  return el('span', '', box, el('span', 'at', String(i)));
};
// A sentence quotes tokens: each stays in one piece, and in right-to-left script leaves its neighbours where they are.
const quoted = new RegExp(`(${data.quoted.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|')})`);
const prose = (target, text) => target.replaceChildren(...text.split(quoted).map((part, i) => i % 2 ? el('bdi', [...part].length < 30 ? 'whole' : '', part) : part));
const named = (c) => c.kind === 'head' ? c.name : c.kind === 'mlp' ? `MLP ${c.layer}` : c.kind === 'bias' ? `bias ${c.layer}` : c.kind === 'offset' ? 'own bias' : 'embedding';

// --- tables behind the figures -------------------------------------------------------------------------------------
const cell = (value) => {
  if (typeof value !== 'number') return el('td', '', value ?? '–');
  const td = el('td', 'n', Number.isInteger(value) ? String(value) : Number(value.toPrecision(4)).toString());
  td.title = String(value);
  return td;
};
const table = (columns, rows) => {
  const head = el('tr', '', ...columns.map((name, i) => { const th = el('th', typeof rows[0]?.[i] === 'number' ? 'n' : '', name); th.scope = 'col'; return th; }));
  return el('table', rows.length > 30 && columns.length <= 3 ? 'many' : '', el('thead', '', head), el('tbody', '', ...rows.map((row) => el('tr', '', ...row.map(cell)))));
};
const fold = (columns, rows, title = 'Numbers') => el('details', 'numbers', el('summary', '', title), el('div', 'scroll', table(columns, rows)));
const figure = (parent, caption, ...kids) => {
  const made = el('figure', '', caption ? el('figcaption', '', ...caption) : null, ...kids);
  $(parent).append(made);
  return made;
};

// --- links: an element carries the keys it stands for, and lights up all elements that share one ---------------------
let pinned = null;
const light = (keys) => {
  const wanted = new Set(keys ?? pinned?.keys ?? []);
  document.body.classList.toggle('linking', wanted.size > 0);
  for (const item of document.querySelectorAll('[data-link]')) item.classList.toggle('hot', item.dataset.link.split(' ').some((key) => wanted.has(key)));
};
const pin = (next) => {
  pinned?.item.removeAttribute('aria-pressed');
  pinned = next && next.item === pinned?.item ? null : next;
  pinned?.item.setAttribute('aria-pressed', 'true');
  light();
};
const link = (item, own, lights = own, focusable = true) => {
  item.dataset.link = own.join(' ');
  item.addEventListener('pointerenter', () => light(lights));
  item.addEventListener('pointerleave', () => light());
  item.addEventListener('click', (event) => { event.stopPropagation(); pin({ item, keys: lights }); });
  if (!focusable) return item;
  item.tabIndex = 0;
  item.setAttribute('role', 'button');
  item.addEventListener('focus', () => light(lights));
  item.addEventListener('blur', () => light());
  item.addEventListener('keydown', (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); pin({ item, keys: lights }); } });
  return item;
};
document.addEventListener('click', () => pin(null));
document.addEventListener('keydown', (event) => { if (event.key === 'Escape') pin(null); });

// --- bars ----------------------------------------------------------------------------------------------------------
// One row: name, bar from zero, number, and what else is to be said below it.
const scale = (values) => ({ low: Math.min(0, ...values), high: Math.max(0, ...values, Math.min(0, ...values) < 0 ? 0 : 1e-12) });
const bar = ({ name, value, range, text, sub, kind }) => {
  const span = range.high - range.low || 1, place = (v) => `${(100 * (v - range.low) / span).toFixed(2)}%`;
  const fill = el('div', `fill ${kind ?? (value < 0 ? 'neg' : '')}`);
  fill.style.left = place(Math.min(0, value));
  fill.style.width = `${(100 * Math.abs(value) / span).toFixed(2)}%`;
  const zero = el('div', 'zero');
  zero.style.left = place(0);
  const label = el('div', 'name', ...(Array.isArray(name) ? name : [name]));
  label.title = label.textContent;
  return el('div', 'bar', label, el('div', 'track', fill, zero), el('div', 'num', text), sub ? el('div', 'sub', ...sub) : null);
};

// --- the pattern: the visible half, row by row -----------------------------------------------------------------------
const cells = (() => {
  const raw = Uint8Array.from(atob(data.pattern.cells), (c) => c.charCodeAt(0));
  return data.pattern.bytes === 2 ? new Uint16Array(raw.buffer) : raw;
})();
const attention = (q, k) => {
  if (k > q) return 0;
  if (q === data.query && k === data.key) return data.attention;
  const v = cells[q * (q + 1) / 2 + k];
  return data.pattern.bytes === 2 ? v / 65535 : (v / 255) ** 2;
};

// --- header ----------------------------------------------------------------------------------------------------------
$('kicker').textContent = `headwise · ${isolated(readable(data.model))} · ${plural(T, 'token')} · ${data.seconds.toFixed(1)} s`;
$('question').replaceChildren(`Why does ${data.head} at `, tokenNode(data.query), ' read ', tokenNode(data.key), '?');
prose($('sentence'), data.sentence);
for (const [name, value] of [
  ['attention', number(data.attention)], ['logit', number(data.logit, 2)], ['relative logit', signed(data.what.relative_logit)],
  ['channels for 90 % of it', `${data.what.channels_needed} of ${data.what.channels.length}`],
  ['answer', isolated(visible(data.answer.text))], ['its probability', number(data.answer.probability)],
  [`lead over ${isolated(visible(data.answer.wrong))}`, signed(data.answer.lead)],
]) $('facts').append(el('div', '', el('dt', '', name), el('dd', '', value)));
const because = el('p', 'soft');
prose(because, `Because ${data.chosen_because}.`);
$('chosen').append(because);
if (data.runners_up.length) $('chosen').append(el('p', 'soft', 'Next in the ranking:'), el('div', 'scroll', table(['head', 'query', 'key', 'score'], data.runners_up.map((r) => [r.head, tokenNode(r.query), tokenNode(r.key), r.score]))));

// --- the prompt as tokens --------------------------------------------------------------------------------------------
let chosen = data.query;
const buttons = data.tokens.map((text, i) => {
  const button = el('button', i === data.query ? 'query' : '', el('bdi', '', ...pieces(text)));
  button.type = 'button';
  if (i === data.key) button.classList.add('key');
  button.addEventListener('click', () => choose(i));
  $('tokens').append(button);
  if (text.includes('\n')) $('tokens').append(el('br'));
  return button;
});
$('tokens').addEventListener('keydown', (event) => {
  const at = buttons.indexOf(document.activeElement);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: T - 1 }[event.key];
  if (at < 0 || to === undefined || !buttons[to]) return;
  event.preventDefault();
  buttons.forEach((b, i) => { b.tabIndex = i === to ? 0 : -1; });
  buttons[to].focus();
});
const rowTable = el('div', '');
const after = [];  // what else follows the chosen row
const choose = (row) => {
  chosen = row;
  buttons.forEach((button, i) => {
    const a = attention(row, i);
    button.style.setProperty('--a', Math.sqrt(a).toFixed(4));
    button.classList.toggle('hotter', Math.sqrt(a) > 0.52);
    button.classList.toggle('unseen', i > row);
    button.setAttribute('aria-pressed', String(i === row));
    button.tabIndex = i === row ? 0 : -1;
    button.title = `${visible(data.tokens[i])} · position ${i}\n${i > row ? `not seen from ${row}` : `attention ${number(a)}`}`;
    button.setAttribute('aria-label', `${visible(data.tokens[i])}, position ${i}, attention ${number(a)}${i === data.query ? ', explained query' : ''}${i === data.key ? ', explained key' : ''}`);
  });
  const reads = [...Array(row + 1).keys()].map((k) => [k, attention(row, k)]).sort((a, b) => b[1] - a[1]);
  $('row').replaceChildren(tokenNode(row), ' reads ', ...reads.slice(0, 5).flatMap(([k, a], i) => [i ? ', ' : '', tokenNode(k), ` ${number(a)}`]));
  const open = rowTable.querySelector('details')?.open;
  rowTable.replaceChildren(fold(['position', 'token', 'attention'], reads.map(([k, a]) => [k, el('bdi', 'tok', visible(data.tokens[k])), a]), 'Numbers of this row'));
  rowTable.firstChild.open = !!open;
  $('back').hidden = row === data.query;
  // A long prompt scrolls inside its box: the row, or what it reads most, must be in sight.
  const box = $('tokens'), seen = buttons[row];
  if (seen.offsetTop < box.scrollTop || seen.offsetTop + seen.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = seen.offsetTop - box.clientHeight / 2;
  for (const follow of after) follow();
};
$('prompt').querySelector('figure').append(rowTable);
$('back').addEventListener('click', () => { choose(data.query); buttons[data.query].focus(); });

// --- theme and print ---------------------------------------------------------------------------------------------------
const repaint = [];
const painted = () => repaint.forEach((one) => one());
let printing = false;
$('theme').addEventListener('click', () => {
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  painted();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', painted);
// On paper nothing can be unfolded, so everything is.
addEventListener('beforeprint', () => {
  printing = true;
  document.querySelectorAll('details:not([open])').forEach((d) => { d.open = true; d.dataset.folded = ''; });
  painted();
});
addEventListener('afterprint', () => {
  printing = false;
  document.querySelectorAll('details[data-folded]').forEach((d) => { d.open = false; delete d.dataset.folded; });
  painted();
});
