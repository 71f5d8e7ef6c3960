// A circuit: tokens along x, layers along y; hover, pin, search, slider and a table of edges.
const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);
const NS = 'http://www.w3.org/2000/svg';
const svg = (name, attributes, parent) => {
  const element = document.createElementNS(NS, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(element);
  return element;
};
const token = (i) => data.tokens[i] === undefined ? '' : visible(data.tokens[i]);
const nodes = new Map(data.nodes.map((n) => [n.id, { ...n, in: [], out: [] }]));
const edges = data.edges.map((e, i) => ({ ...e, i, from: nodes.get(e.source), to: nodes.get(e.target) }));
for (const e of edges) { e.from.out.push(e); e.to.in.push(e); }
const name = (n) => n.kind === 'head' ? `L${n.layer}H${n.head}` : n.kind === 'mlp' ? `MLP${n.layer}` : n.kind === 'bias' ? `bias${n.layer}` : n.kind;
const label = (n) => n.kind === 'head' ? `${name(n)}  ${isolated(token(n.query))} ← ${isolated(token(n.key))}` : n.kind === 'answer' ? (data.answer === null ? 'answer' : `answer ${isolated(visible(data.answer))}`) : `${name(n)}  ${isolated(token(n.query))}`;
const quoted = (text) => text === null ? 'this' : isolated(readable(JSON.stringify(text)));
const isAnswer = (e) => e.to.kind === 'answer';

$('title').textContent = `Why ${quoted(data.answer)}${data.wrong ? ` and not ${quoted(data.wrong)}` : ''}?`;
$('prompt').textContent = readable(data.prompt ?? data.tokens.join(''));
const heads = data.nodes.filter((n) => n.kind === 'head').length;
$('facts').textContent = `${heads} head firings, ${data.nodes.length} nodes, ${edges.length} edges · ${isolated(readable(String(data.model.name)))}, ${readable(String(data.mode))} mode`;
for (const line of data.notes) { const p = document.createElement('p'); p.className = 'note'; p.textContent = readable(line); $('notes').appendChild(p); }

// --- layout: a column per token, a row per layer in use; nodes of one cell side by side -----------------------
const order = { embedding: 0, offset: 1, bias: 2, head: 3, mlp: 4, answer: 5 };
const rowOf = (n) => n.layer < 0 ? -1 : n.kind === 'answer' ? 1e6 : n.layer * 2 + (n.kind === 'mlp' ? 1 : 0);
const rows = [...new Set([...nodes.values()].map(rowOf))].sort((a, b) => a - b);
const cells = new Map();
for (const n of nodes.values()) {
  const key = `${rowOf(n)}:${n.query}`;
  if (!cells.has(key)) cells.set(key, []);
  cells.get(key).push(n);
}
for (const cell of cells.values()) cell.sort((a, b) => order[a.kind] - order[b.kind] || a.head - b.head || a.key - b.key);
const used = new Set([...nodes.values()].map((n) => n.query));
for (const n of nodes.values()) used.add(n.key);
const columns = data.tokens.map((_, i) => i).filter((i) => data.tokens.length <= 40 || used.has(i));
const step = 62, left = 64, top = 34;
// rows that hold no head are narrow: their nodes carry no label until asked
const tall = rows.map((row) => row === 1e6 || (row >= 0 && row % 2 === 0) ? 46 : 26);
const width = new Map(), x0 = new Map();
let x = left;
for (const i of columns) {
  let most = 1;
  for (const [key, cell] of cells) if (key.endsWith(`:${i}`)) most = Math.max(most, cell.some((n) => n.kind === 'head') ? cell.length : 1);
  const text = 8 * token(i).length + 18;
  const w = Math.max(54, text, most * step);
  width.set(i, w); x0.set(i, x); x += w;
}
const total = x + 24, height = top + tall.reduce((a, b) => a + b, 0) + 64;
const bottomOf = new Map();
rows.reduce((y, row, i) => { bottomOf.set(row, y); return y - tall[i]; }, height - 64);
const yOf = (row) => bottomOf.get(row) - tall[rows.indexOf(row)] / 2;
for (const cell of cells.values()) cell.forEach((n, i) => {
  const w = width.get(n.query) ?? 54;
  n.x = (x0.get(n.query) ?? left) + w * (i + 1) / (cell.length + 1); n.y = yOf(rowOf(n));
});
const picture = svg('svg', { width: total, height, viewBox: `0 0 ${total} ${height}`, role: 'img' });
columns.forEach((i, k) => {
  if (k % 2) svg('rect', { class: 'band', x: x0.get(i), y: 0, width: width.get(i), height: height }, picture);
  const text = svg('text', { class: 'token', x: x0.get(i) + width.get(i) / 2, y: height - 32, 'text-anchor': 'middle' }, picture);
  text.textContent = token(i);
  svg('text', { class: 'token', x: x0.get(i) + width.get(i) / 2, y: 20, 'text-anchor': 'middle' }, picture).textContent = token(i);
  svg('text', { x: x0.get(i) + width.get(i) / 2, y: height - 15, 'text-anchor': 'middle' }, picture).textContent = i;
});
for (const row of rows) {
  svg('line', { class: 'rowline', x1: left, x2: total, y1: bottomOf.get(row), y2: bottomOf.get(row) }, picture);
  svg('text', { x: left - 10, y: yOf(row) + 4, 'text-anchor': 'end' }, picture).textContent = row < 0 ? 'embed' : row === 1e6 ? 'answer' : row % 2 ? `MLP ${(row - 1) / 2}` : `L${row / 2}`;
}
const heaviest = Math.max(1e-9, ...edges.filter((e) => !isAnswer(e)).map((e) => e.weight));
const heaviestAnswer = Math.max(1e-9, ...edges.filter(isAnswer).map((e) => e.weight));
const share = (e) => Math.max(0, e.weight) / (isAnswer(e) ? heaviestAnswer : heaviest);
const edgeLayer = svg('g', {}, picture), nodeLayer = svg('g', {}, picture);
for (const e of edges) {
  const { from: a, to: b } = e, bend = Math.max(18, Math.abs(a.y - b.y) * 0.45), near = Math.abs(a.x - b.x) < 40 ? Math.min(70, 0.14 * Math.abs(a.y - b.y)) : 0, lean = (e.side === 'key' ? 1 : -1) * (6 + near);
  e.path = svg('path', { class: `edge ${e.side}`, d: `M${a.x},${a.y} C${a.x + lean},${a.y - bend} ${b.x + lean},${b.y + bend} ${b.x},${b.y}`, 'stroke-width': (0.7 + 7 * share(e)).toFixed(2) }, edgeLayer);
  e.path.addEventListener('pointermove', (event) => tip(event, edgeText(e)));
  e.path.addEventListener('pointerleave', () => hide());
}
for (const n of nodes.values()) {
  n.g = svg('g', { class: `node ${n.kind}${n.kind === 'head' || n.kind === 'answer' ? '' : ' minor'}`, transform: `translate(${n.x},${n.y})`, tabindex: 0, role: 'button', 'aria-label': label(n) }, nodeLayer);
  if (n.kind === 'head') svg('circle', { r: 4 + 5 * (n.attention ?? 0) }, n.g);
  else svg('rect', n.kind === 'answer' ? { x: -9, y: -7, width: 18, height: 14, rx: 3 } : { x: -4.5, y: -4.5, width: 9, height: 9, rx: n.kind === 'embedding' ? 4.5 : 1 }, n.g);
  svg('text', { y: -12, 'text-anchor': 'middle' }, n.g).textContent = n.kind === 'answer' ? visible(data.answer ?? 'answer') : name(n);
  n.g.addEventListener('pointermove', (event) => { tip(event, nodeText(n)); if (!pinned) light(n); });
  n.g.addEventListener('pointerleave', () => { hide(); if (!pinned) light(null); });
  const pin = (event) => { event.stopPropagation(); setPin(pinned === n ? null : n); };
  n.g.addEventListener('click', pin);
  n.g.addEventListener('keydown', (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); pin(event); } });
}
$('graph').appendChild(picture);

// --- what hovering and pinning show ----------------------------------------------------------------------------
const number = (v) => v === null ? '–' : Math.abs(v) >= 0.001 || v === 0 ? v.toFixed(3) : v.toExponential(1);
const edgeText = (e) => [`${label(e.from)}  →  ${label(e.to)}`, `${isAnswer(e) ? 'share of the answer' : `${e.side} side · attention taken`} ${number(e.weight)}${e.channels.length ? `\nchannels ${e.channels.join(', ')}` : ''}`];
const nodeText = (n) => {
  const lines = [];
  if (n.attention !== null && n.attention !== undefined) lines.push(`attention ${number(n.attention)}`);
  for (const [title, list] of [['query side', n.in.filter((e) => e.side === 'query')], ['key side', n.in.filter((e) => e.side === 'key')], ['feeds', n.out]]) {
    if (!list.length) continue;
    lines.push(`${title}:`);
    const sorted = [...list].sort((a, b) => b.weight - a.weight);
    for (const e of sorted.slice(0, 6)) lines.push(`  ${number(e.weight)}  ${label(title === 'feeds' ? e.to : e.from)}${e.channels.length ? `  [${e.channels.join(', ')}]` : ''}`);
    if (sorted.length > 6) lines.push(`  … ${sorted.length - 6} more`);
  }
  return [label(n), lines.join('\n')];
};
const tip = (event, [title, text]) => {
  const box = $('tip'); box.textContent = '';
  const b = document.createElement('b'); b.textContent = title; box.append(b, text);
  box.style.display = 'block';
  const { width: w, height: h } = box.getBoundingClientRect();
  box.style.left = `${Math.min(event.clientX + 14, innerWidth - w - 8)}px`;
  box.style.top = `${Math.min(event.clientY + 14, innerHeight - h - 8)}px`;
};
const hide = () => { $('tip').style.display = 'none'; };
let pinned = null, smallest = 0, words = '', minor = true, sort = ['weight', -1];
const shown = (e) => (isAnswer(e) || e.weight >= smallest) && (minor || ['head', 'answer'].includes(e.from.kind));
const light = (n) => {
  const mine = new Set(n ? [...n.in, ...n.out] : []);
  const near = new Set(n ? [n, ...n.in.map((e) => e.from), ...n.out.map((e) => e.to)] : []);
  for (const e of edges) { e.path.classList.toggle('hot', mine.has(e)); e.path.classList.toggle('dim', !!n && !mine.has(e)); }
  for (const m of nodes.values()) { m.g.classList.toggle('hot', near.has(m)); m.g.classList.toggle('dim', !!n && !near.has(m)); m.g.classList.toggle('pinned', m === pinned); }
};
const setPin = (n) => { pinned = n; $('unpin').hidden = !n; light(n); table(); };
const matches = (n) => words && `${label(n)} ${n.id}`.replace(/[\u2068\u2069]/g, '').toLowerCase().includes(words);
const draw = () => {
  const alive = new Set();
  for (const e of edges) { const on = shown(e); e.path.style.display = on ? '' : 'none'; if (on) { alive.add(e.from); alive.add(e.to); } }
  for (const n of nodes.values()) { n.g.style.display = alive.has(n) || n.kind === 'answer' ? '' : 'none'; n.g.classList.toggle('found', !!matches(n)); }
  $('weightout').textContent = `${smallest.toFixed(3)} · ${edges.filter(shown).length} of ${edges.length} edges`;
  table();
};
const fields = [['from', (e) => label(e.from)], ['to', (e) => label(e.to)], ['side', (e) => isAnswer(e) ? '' : e.side], ['weight', (e) => e.weight], ['channels', (e) => e.channels.length]];
const table = () => {
  let list = edges.filter(shown);
  if (pinned) list = list.filter((e) => e.from === pinned || e.to === pinned);
  if (words) list = list.filter((e) => matches(e.from) || matches(e.to));
  const value = fields.find((f) => f[0] === sort[0])[1];
  list.sort((a, b) => sort[1] * (value(a) > value(b) ? 1 : value(a) < value(b) ? -1 : 0) || a.i - b.i);
  const body = $('rows'); body.textContent = '';
  for (const e of list) {
    const tr = document.createElement('tr'); tr.className = 'pick';
    const cell = (text, kind) => { const td = document.createElement('td'); td.textContent = text; if (kind) td.className = kind; tr.appendChild(td); };
    cell(label(e.from)); cell(label(e.to)); cell(isAnswer(e) ? '' : e.side, isAnswer(e) ? '' : e.side === 'key' ? 'k' : 'q'); cell(number(e.weight), 'n'); cell(e.channels.join(', '));
    tr.addEventListener('click', () => { setPin(e.to); $('graph').scrollIntoView({ block: 'nearest' }); });
    body.appendChild(tr);
  }
};
for (const [field] of fields) {
  const th = document.createElement('th'), button = document.createElement('button');
  button.textContent = field; button.type = 'button';
  button.addEventListener('click', () => { sort = [field, sort[0] === field ? -sort[1] : field === 'weight' || field === 'channels' ? -1 : 1]; table(); });
  th.appendChild(button); $('heads').appendChild(th);
}
$('search').addEventListener('input', (event) => { words = event.target.value.trim().toLowerCase(); draw(); });
// cubic: most edges are light, so most of the slider is for them
$('weight').addEventListener('input', (event) => { smallest = heaviest * (event.target.value / 1000) ** 3; draw(); });
$('small').addEventListener('change', (event) => { minor = event.target.checked; draw(); });
$('unpin').addEventListener('click', () => setPin(null));
picture.addEventListener('click', () => setPin(null));
addEventListener('keydown', (event) => { if (event.key === 'Escape') setPin(null); });
$('theme').addEventListener('click', () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
});
const theme = new URLSearchParams(location.search).get('theme');
if (theme) document.documentElement.dataset.theme = theme;
// A circuit of very many edges opens with its heavier ones; the slider brings the rest.
const inner = edges.filter((e) => !isAnswer(e)).map((e) => e.weight).sort((a, b) => b - a);
if (inner.length > 300) { $('weight').value = Math.ceil(1000 * Math.cbrt(inner[299] / heaviest)); smallest = heaviest * ($('weight').value / 1000) ** 3; }
draw();
