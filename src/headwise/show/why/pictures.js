// The drawings of the firing and of the whole head, and the fold-out that explains every number.
const tip = (event, text) => {
  const box = $('tip');
  box.textContent = text;
  box.style.display = 'block';
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  box.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 8))}px`;
};
const untip = () => { $('tip').style.display = 'none'; };

// --- the local circuit: a column per token in play, a row per layer in use -----------------------------------------------
const circuitFigure = () => {
  const layerOf = (w) => w.layer < 0 || w.kind === 'embedding' ? -1 : 2 * w.layer + (w.kind === 'mlp' ? 1 : 0);
  const firing = 2 * Number(data.head.match(/\d+/)[0]);
  const rows = [...new Set(writers.map((w) => w.kind === 'offset' ? firing - 0.5 : layerOf(w)))].sort((a, b) => a - b);
  const inPlay = new Set([data.query, data.key, ...writers.map((w) => w.position), ...writers.filter((w) => w.kind === 'head').map((w) => w.source)]);
  const columns = [...inPlay].sort((a, b) => a - b);
  const PW = 116, PH = 36, ROW = 58, left = 70, bulge = 84;
  const rowOf = (w) => rows.indexOf(w.kind === 'offset' ? firing - 0.5 : layerOf(w));
  const stack = new Map();
  for (const w of writers) { const at = `${w.position}:${rowOf(w)}`; stack.set(at, [...(stack.get(at) ?? []), w]); }
  const start = new Map(), widths = new Map();
  let x = left;
  columns.forEach((i, n) => {
    if (n && columns[n - 1] !== i - 1) x += 26;  // room for the dots that say that tokens are left out
    const most = Math.max(0, ...rows.map((_, r) => stack.get(`${i}:${r}`)?.length ?? 0));
    const ends = i === data.query || i === data.key ? (data.query === data.key ? 2 : 1) : 0;
    const text = Math.min(16, [...visible(data.tokens[i])].length) * 8 + 18;
    const wide = Math.max(54, text, Math.max(most, ends) * (PW + 10) + (most || ends ? bulge : 0));
    start.set(i, x); widths.set(i, wide); x += wide + 4;
  });
  const total = x + 10, top = 22, bottom = top + (rows.length + 1) * ROW + 10, height = bottom + 50;
  const middle = (i) => start.get(i) + (widths.get(i) - ((stackAt(i) || i === data.query || i === data.key) ? bulge : 0)) / 2;
  const stackAt = (i) => rows.some((_, r) => stack.has(`${i}:${r}`));
  const yOf = (r) => bottom - 10 - (r + 0.5) * ROW, yTop = top + ROW / 2;
  const picture = svg('svg', { width: total, height, viewBox: `0 0 ${total} ${height}`, role: 'group', 'aria-label': 'Local circuit' });
  columns.forEach((i, n) => {
    svg('rect', { class: 'col', x: start.get(i), y: 4, width: widths.get(i), height: bottom, rx: 8 }, picture);
    if (n && columns[n - 1] !== i - 1) svg('text', { x: start.get(i) - 15, y: bottom + 22, 'text-anchor': 'middle' }, picture, '…');
    const fill = i === data.query ? 'var(--query)' : i === data.key ? 'var(--key)' : 'var(--ink)';
    const label = svg('text', { class: 'mono', x: middle(i), y: bottom + 22, 'text-anchor': 'middle', 'font-weight': 600, style: `fill:${fill};font-size:13px` }, picture, isolated(short(visible(data.tokens[i]))));
    svg('title', {}, label, `${visible(data.tokens[i])} (${i})`);
    svg('text', { x: middle(i), y: bottom + 39, 'text-anchor': 'middle' }, picture, `${i}${i === data.query ? ' · query' : ''}${i === data.key ? ' · key' : ''}`);
  });
  const rowName = (r) => rows[r] < 0 ? 'embedding' : rows[r] === firing - 0.5 ? 'own bias' : rows[r] % 2 ? `MLP ${(rows[r] - 1) / 2}` : `layer ${rows[r] / 2}`;
  rows.forEach((_, r) => svg('text', { x: left - 10, y: yOf(r) + 4, 'text-anchor': 'end' }, picture, rowName(r)));
  svg('text', { x: left - 10, y: yTop + 4, 'text-anchor': 'end', class: 'ink', 'font-weight': 600 }, picture, `layer ${firing / 2}`);

  const same = data.query === data.key;
  const ends = { query: middle(data.query) + (same ? PW / 2 + 5 : 0), key: middle(data.key) - (same ? PW / 2 + 5 : 0) };
  const edges = svg('g', {}, picture), nodes = svg('g', {}, picture);
  svg('line', { class: 'attn', x1: ends.key + PW / 2, x2: ends.query - PW / 2, y1: yTop, y2: yTop, 'stroke-width': 2 + 9 * data.attention }, edges);
  if (!same) svg('text', { x: (ends.key + ends.query) / 2, y: yTop - 10, 'text-anchor': 'middle', class: 'ink' }, edges, `attention ${number(data.attention)}`);
  const pill = (cx, cy, cls, first, second) => {
    const group = svg('g', { class: `pill ${cls}`, transform: `translate(${cx - PW / 2},${cy - PH / 2})` }, nodes);
    svg('rect', { width: PW, height: PH, rx: 9 }, group);
    svg('text', { x: PW / 2, y: second ? 15 : 22, 'text-anchor': 'middle', class: 'ink', 'font-weight': 600 }, group, first);
    if (second) svg('text', { x: PW / 2, y: 29, 'text-anchor': 'middle', style: 'font-size:11px' }, group, second);
    return group;
  };
  const heaviest = Math.max(1e-9, ...writers.map((w) => w.share));
  for (const w of writers) {
    const cell = stack.get(`${w.position}:${rowOf(w)}`), at = cell.indexOf(w);
    const cx = middle(w.position) + (at - (cell.length - 1) / 2) * (PW + 10), cy = yOf(rowOf(w)), ex = ends[w.side];
    // Every edge leaves to the right and bulges with its length, so that it passes the boxes above it.
    const rise = rows.length - rowOf(w), out = 14 + (bulge - 14) * rise / Math.max(4, rows.length);
    const below = writers.filter((v) => v.side === w.side && rowOf(v) < rowOf(w)).length;
    const end = ex + PW / 2 - 8 - Math.min(6, 50 / writers.length) * below;
    const heavy = 1.2 + 8 * Math.max(0, w.share) / heaviest;
    const path = svg('path', { class: `edge ${w.side}`, 'stroke-width': heavy.toFixed(2), d: `M${cx + PW / 2},${cy} C${cx + PW / 2 + out},${cy - 14} ${ex + PW / 2 + out},${yTop + PH} ${end},${yTop + PH / 2}` }, edges);
    link(path, [`w${w.i}`], [...w.keys, idOf(w)], false);
    if (w.kind === 'head' && w.source !== w.position) {
      const sx = middle(w.source), tx = cx - PW / 2 - 3;
      const read = svg('path', { class: 'read', d: `M${sx},${bottom - 2} C${sx},${cy + 10} ${(sx + tx) / 2},${cy} ${tx},${cy}` }, edges);
      read.dataset.link = `w${w.i}`;
    }
    const node = pill(cx, cy, w.side, `${named(w)} · ${percent(w.share)}`, w.kind === 'head' ? (w.source === w.position ? 'reads itself' : `reads ${isolated(short(visible(data.tokens[w.source]), 9))} (${w.source})`) : `ch ${short(w.channels.join(', '), 14)}`);
    const words = `${named(w)}, ${w.side} side, at ${tokenText(w.position)}${w.kind === 'head' ? `, read ${tokenText(w.source)}` : ''}\n${w.channels.length === 1 ? 'channel' : 'channels'} ${w.channels.join(', ')}\nshare ${percent(w.share)}, drop in attention ${number(w.drop)}`;
    node.setAttribute('aria-label', words.replace(/\n/g, ', '));
    link(node, [`w${w.i}`], [...w.keys, idOf(w)]);
    for (const item of [node, path]) { item.addEventListener('pointermove', (event) => tip(event, words)); item.addEventListener('pointerleave', untip); }
  }
  pill(ends.key, yTop, 'key', 'key', `of ${isolated(short(visible(data.tokens[data.key]), 12))}`);
  pill(ends.query, yTop, 'firing', data.head, `at ${isolated(short(visible(data.tokens[data.query]), 12))}`);
  const holder = el('div', '', picture);
  holder.id = 'circuit';
  holder.tabIndex = 0;
  const legend = el('div', 'legend', ...[['keyline', 'query side'], ['keyline dash', 'key side'], ['keyline read', 'the token a head read'], ['keyline attn', 'this attention']].map(([cls, text]) => el('span', '', el('i', cls), text)));
  figure('local', ['Width by share of the drop. Tokens that take no part are left out.'], holder, legend, fold(['from', 'at', 'read', 'to', 'channels', 'share'], writers.map((w) => [named(w), tokenNode(w.position), w.kind === 'head' ? tokenNode(w.source) : '–', `${w.side} of ${data.head}`, w.channels.join(', '), w.share])));
};

// --- the whole pattern -------------------------------------------------------------------------------------------------
const mapFigure = () => {
  const canvas = el('canvas', ''), cellBox = el('div', '');
  cellBox.id = 'cell';
  canvas.id = 'map';
  canvas.tabIndex = 0;
  canvas.setAttribute('role', 'application');
  canvas.setAttribute('aria-label', `Attention of ${data.head}: queries downwards, keys to the right; arrow keys move, Enter shows the row`);
  const named_ = T <= 32, block = Math.ceil(T / 1024), n = Math.ceil(T / block);
  let cursor = null, side = 640, pad = 0;
  const top = 9;  // half a line of text above the first row
  const colour = (name) => printing ? { '--bg': '#ffffff', '--heat': '#6d3fc0', '--ink': '#1b1f24', '--soft': '#5b6470', '--line': '#e3e6ea', '--query': '#0072b2', '--key': '#d55e00', '--band': '#f1f3f6' }[name] : getComputedStyle(root).getPropertyValue(name).trim();
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const image = document.createElement('canvas');
  image.width = image.height = n;
  // One pixel a cell; in very long prompts one pixel a block, which shows its strongest cell.
  const fill = () => {
    const [low, high, never] = ['--bg', '--heat', '--band'].map((name) => rgb(colour(name)));
    const context = image.getContext('2d'), pixels = context.createImageData(n, n);
    for (let r = 0; r < n; r++) for (let c = 0; c < n; c++) {
      let a = c > r ? -1 : 0;
      if (a === 0) for (let q = r * block; q < Math.min(T, (r + 1) * block); q++) for (let k = c * block; k < Math.min(q + 1, (c + 1) * block); k++) a = Math.max(a, attention(q, k));
      const shade = Math.sqrt(Math.max(0, a)), at = 4 * (r * n + c);
      for (let i = 0; i < 3; i++) pixels.data[at + i] = a < 0 ? never[i] : Math.round(low[i] + (high[i] - low[i]) * shade);
      pixels.data[at + 3] = 255;
    }
    context.putImageData(pixels, 0, 0);
  };
  const draw = () => {
    const ratio = Math.max(1, Math.min(3, devicePixelRatio || 1)), wide = canvas.clientWidth || 640;
    const c = canvas.getContext('2d');
    c.font = '12px ui-monospace, Menlo, Consolas, monospace';
    pad = named_ ? Math.min(150, 26 + Math.max(...data.tokens.map((t) => c.measureText(short(visible(t), 14)).width))) : 40;
    side = wide - pad - top - 4;
    canvas.width = wide * ratio; canvas.height = wide * ratio;
    canvas.style.aspectRatio = '1';
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, wide, wide);
    c.imageSmoothingEnabled = false;
    c.drawImage(image, pad, top, side, side);
    c.strokeStyle = colour('--line');
    c.strokeRect(pad, top, side, side);
    const step = side / T, mark = (i) => i === data.query && i === data.key ? '--ink' : i === data.query ? '--query' : i === data.key ? '--key' : '--soft';
    c.font = '12px ui-monospace, Menlo, Consolas, monospace';
    const every = T <= 100 ? 10 : T <= 500 ? 50 : T <= 1000 ? 100 : 10 ** Math.ceil(Math.log10(T / 10));
    for (let i = 0; i < T; i++) {
      if (!named_ && i % every) continue;
      const text = named_ ? short(visible(data.tokens[i]), 14) : String(i);
      c.fillStyle = colour(named_ ? mark(i) : '--soft');
      c.textAlign = 'right'; c.textBaseline = 'middle';
      c.fillText(text, pad - 6, top + (i + 0.5) * step);
      c.save();
      c.translate(pad + (i + 0.5) * step, side + top + 7);
      if (named_) c.rotate(-Math.PI / 2); else c.textAlign = 'center';
      c.fillText(text, 0, named_ ? 0 : 8);
      c.restore();
    }
    const box = (q, k, name, grow) => { c.strokeStyle = colour(name); c.lineWidth = 2; c.strokeRect(pad + k * step - grow, top + q * step - grow, step + 2 * grow, step + 2 * grow); };
    c.fillStyle = colour('--ink');
    c.globalAlpha = 0.5;
    c.fillRect(pad, top + (chosen + 1) * step - 1, side, 1);
    c.fillRect(pad, top + chosen * step, side, 1);
    c.globalAlpha = 1;
    box(data.query, data.key, '--key', Math.max(1, 5 - step / 2));
    if (cursor) box(cursor[0], cursor[1], '--ink', Math.max(0.5, 4 - step / 2));
  };
  const show = () => {
    const [q, k] = cursor ?? [data.query, data.key];
    cellBox.replaceChildren(el('div', 'soft', cursor ? 'this cell' : 'the explained cell'), el('b', '', k > q ? 'not visible' : number(attention(q, k), 4)), el('div', '', 'query ', tokenNode(q, 24)), el('div', '', 'key ', tokenNode(k, 24)));
  };
  const over = (event) => {
    const at = canvas.getBoundingClientRect();
    const q = Math.floor((event.clientY - at.top - top) / side * T), k = Math.floor((event.clientX - at.left - pad) / side * T);
    return q < 0 || k < 0 || q >= T || k >= T ? null : [q, k];
  };
  const move = (next) => { cursor = next; draw(); show(); };
  canvas.addEventListener('pointermove', (event) => {
    move(over(event));
    if (cursor) tip(event, `${tokenText(cursor[0])} ← ${tokenText(cursor[1])}\n${cursor[1] > cursor[0] ? 'a later token: not visible' : `attention ${number(attention(...cursor), 4)}`}`); else untip();
  });
  canvas.addEventListener('pointerleave', () => { untip(); move(null); });
  canvas.addEventListener('click', (event) => { const at = over(event); if (at) choose(at[0]); });
  canvas.addEventListener('keydown', (event) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const [q, k] = cursor ?? [data.query, data.key];
    if (event.key === 'Enter') choose(q);
    if (!by) return;
    event.preventDefault();
    move([Math.max(0, Math.min(T - 1, q + by[0])), Math.max(0, Math.min(T - 1, k + by[1]))]);
  });
  canvas.addEventListener('blur', () => move(null));
  const strongest = [];
  for (let q = 0; q < T; q++) for (let k = 0; k <= q; k++) { const a = attention(q, k); if (a >= 0.02) strongest.push([q, k, a]); }
  strongest.sort((a, b) => b[2] - a[2]);
  const legend = el('div', 'legend', el('span', '', el('i', 'ramp'), '0 to 1 (root scale)'), el('span', '', el('span', 'k', '▢ '), 'explained cell'), el('span', '', '═ row shown above'));
  figure('pattern', null, el('div', 'map', canvas, el('div', '', cellBox, legend)), fold(['query', 'key', 'attention'], strongest.slice(0, 120).map(([q, k, a]) => [tokenNode(q), tokenNode(k), a]), `Numbers of the ${Math.min(120, strongest.length)} strongest cells`));
  after.push(() => { draw(); show(); });
  repaint.push(() => { fill(); draw(); });
  addEventListener('resize', draw);
  fill();
};

// --- how to read this --------------------------------------------------------------------------------------------------
const howto = () => {
  const list = el('dl', '');
  for (const [term, formula, words] of [
    ['Logit', 'logit(d, s) = scale · q_d · k_s', 'How well the query of token d fits the key of token s, after the rotation by position. Attention is the softmax of a row of logits: what counts is how far one logit is above the others.'],
    ['Relative logit', 'RA(d, s) = logit(d, s) − mean of the other visible logits', 'By how much this key beats its rivals on average. A logit of 10 means little if every key has 10; a relative logit of 5 means a lot.'],
    ['Channels', 'logit = Σ_k a_k · b_k', 'A head’s query–key matrix, split into its singular directions. In channel k the query has the amount a_k and the key the amount b_k; the products add up to the logit exactly. Bars show the same split of the relative logit. Hatched bars speak against this key.'],
    ['Named features', 'relative logit = Σ features + unexplained', 'Subspaces found by contrasting prompts. Where features overlap, each gets its Shapley share: its mean gain over all orders in which the features could be added, so that no order is chosen. What no feature holds is unexplained.'],
    ['Rivals', 'gap = logit(d, s) − logit(d, rival)', 'The other keys with most attention, and the channels in which they fall furthest behind.'],
    ['Who: the smallest cause', 'share = drop of one component ÷ drop of its side', 'A signal is what one component (a head’s reading of one token, an MLP, the embedding, a bias) wrote into one channel of the query or the key. The search finds a set whose removal brings the attention below the threshold and from which nothing can be left out. A component’s share is its part of the drop; the shares of a side sum to 100 %.'],
    ['Who wrote a feature', 'Σ writers of a side = the feature’s logit', 'What each component wrote inside the feature’s subspace, times what the other side has there. Query side and key side each sum to the feature’s logit: two views of one number, not two parts of it.'],
    ['Predicted attention', 'softmax of the row after q (or k) loses the signals', 'Calculated from the split alone. Observed is what the model itself does when the same parts are taken out during its forward pass. They must agree; if not, the page says that the proof fails.'],
    ['Controls and percentile', 'percentile = 100 · share of controls that left more attention', 'The same number of signals of the same components, in channels the cause does not use. If random removals do as much, the explanation explains nothing, and the page says so. 100 % is best.'],
    ['Probability and lead', 'lead = logit of the answer − logit of the other', 'What the model says at the end, before and after. A head may be explained well and still matter little for the answer: other heads can make up for it.'],
  ]) list.append(el('dt', '', term), el('dd', '', el('span', 'formula', formula), el('br'), words));
  $('howto').append(list);
};

channelFigure();
featureFigure();
rivalFigure();
writerFigure();
featureWriters();
circuitFigure();
proofFigure();
featureProof();
mapFigure();
howto();
choose(data.query);
