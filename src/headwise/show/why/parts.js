// The three parts: what made the score, who wrote it, and proof.
const { what, who, proof } = data;
for (const feature of [...what.features, ...who.features, ...proof.features]) feature.name = readable(feature.name);
const writers = who.writers.map((w, i) => ({ ...w, i, keys: [`w${i}`, ...w.channels.map((c) => `c${c}`)] }));
const ofChannel = (c) => writers.filter((w) => w.channels.includes(c));
const channelKeys = (c) => [`c${c}`, ...ofChannel(c).map((w) => `w${w.i}`)];
const idOf = (w) => `f:${w.side}:${w.name}:${w.source ?? ''}`.replace(/ /g, '_');
const sideMarks = (c) => [['query', 'who'], ['key', 'who k']].filter(([side]) => ofChannel(c).some((w) => w.side === side)).map(([side, cls]) => { const mark = el('i', cls); mark.title = `written on the ${side} side`; return mark; });

// --- What --------------------------------------------------------------------------------------------------------------
const channelFigure = () => {
  // The strongest channels, and those that somebody wrote into even if they are weak: a writer must have its bars.
  const top = what.channels.slice(0, 12);
  const also = what.channels.slice(12).filter((p) => ofChannel(p.channel).length).slice(0, 12);
  const rest = what.channels.filter((p) => !top.includes(p) && !also.includes(p));
  const other = sum(rest.map((p) => p.value));
  const range = scale([...top, ...also].map((p) => p.value).concat(other));
  const box = el('div', '');
  box.id = 'channels';
  for (const p of [...top, ...also]) {
    const row = link(bar({ name: [`channel ${p.channel}`, ...sideMarks(p.channel)], value: p.value, range, text: signed(p.value) }), [`c${p.channel}`], channelKeys(p.channel));
    row.title = `channel ${p.channel}: ${signed(p.value, 3)} of the relative logit, ${signed(p.logit, 3)} of the logit`;
    box.append(row);
  }
  if (rest.length) {
    const written = rest.filter((p) => ofChannel(p.channel).length);
    box.append(link(bar({ name: `${rest.length} others`, value: other, range, text: signed(other), kind: 'plain' }), written.length ? written.map((p) => `c${p.channel}`) : ['rest'], written.flatMap((p) => channelKeys(p.channel)).concat('rest'), written.length > 0));
  }
  const mark = (cls) => el('span', 'bar', el('i', cls));
  const caption = [el('b', '', `Relative logit ${signed(what.relative_logit)} by channel. `), `Bars sum to it; ${what.channels_needed} of ${what.channels.length} channels rebuild 90 %. Marked: written by the cause on the `];
  const inline = (cls, text) => { const m = mark(cls); m.style.cssText = 'display:inline;padding:0'; return [m, ` ${text}`]; };
  figure('what', [...caption, ...inline('who', 'query side, '), ...inline('who k', 'key side.')], box, fold(['channel', 'relative logit', 'logit', 'written by'], what.channels.map((p) => [p.channel, p.value, p.logit, ofChannel(p.channel).map((w) => `${named(w)} (${w.side})`).join(', ')])));
};
const featureFigure = () => {
  if (!what.features.length) return;
  const parts = [...what.features, { name: 'unexplained', rank: null, value: what.unexplained, logit: null }];
  const range = scale(parts.map((p) => p.value)), box = el('div', '');
  box.id = 'features';
  box.style.setProperty('--label', '150px');
  for (const p of parts) box.append(bar({ name: p.rank === null ? p.name : isolated(p.name), value: p.value, range, text: signed(p.value), kind: p.rank === null ? 'plain' : undefined }));
  figure('what', [el('b', '', `The same by named feature. `), `Unexplained: ${percent(what.unexplained_share)}.`], box, fold(['feature', 'rank', 'relative logit', 'logit'], parts.map((p) => [p.name, p.rank, p.value, p.logit])));
};
const rivalFigure = () => {
  if (!what.rivals.length) return;
  const range = scale(what.rivals.map((r) => r.gap)), box = el('div', '');
  box.id = 'rivals';
  box.style.setProperty('--label', '130px');
  for (const r of what.rivals) {
    const chips = r.channels.flatMap((p, i) => [i ? ', ' : '', link(el('span', '', `channel ${p.channel} ${signed(p.value)}`), [`c${p.channel}`], channelKeys(p.channel), false)]);
    const verb = r.gap >= 0 ? `attention ${number(r.attention)}; loses most in ` : `attention ${number(r.attention)}; is ahead, though it loses in `;
    box.append(bar({ name: [tokenNode(r.key, 18)], value: r.gap, range, text: signed(r.gap), sub: [verb, ...chips] }));
  }
  figure('what', [el('b', '', 'The strongest rivals and why they lose. '), 'Bars: by how much their logit is below the explained key’s.'], box, fold(['key', 'attention', 'logit gap', 'channels'], what.rivals.map((r) => [tokenNode(r.key), r.attention, r.gap, r.channels.map((p) => `${p.channel}: ${signed(p.value, 3)}`).join(', ')])));
};

// --- Who ---------------------------------------------------------------------------------------------------------------
const place = (w) => ['at ', tokenNode(w.position, 18), ...(w.kind === 'head' ? [', read ', tokenNode(w.source, 18)] : [])];
const sideTitle = (side) => el('div', 'side', el('span', side === 'query' ? 'q' : 'k', `${side === 'query' ? 'Query' : 'Key'} side`), el('span', 'at', side === 'query' ? 'who wrote what the reader looks for' : 'who wrote what it finds'));
const writerFigure = () => {
  const box = el('div', ''), range = scale([...writers.map((w) => w.share), 0.01]);
  box.id = 'writers';
  for (const side of ['query', 'key']) {
    box.append(sideTitle(side));
    const mine = writers.filter((w) => w.side === side);
    for (const w of mine) {
      const row = bar({ name: [el('b', '', named(w))], value: w.share, range, text: percent(w.share), kind: side, sub: [...place(w), ` · ${w.channels.length === 1 ? 'channel' : 'channels'} ${w.channels.join(', ')}`] });
      box.append(link(row, [`w${w.i}`, idOf(w)], [...w.keys, idOf(w)]));
    }
    if (who.unresolved.includes(side)) box.append(el('p', 'soft', 'No set of allowed size brings the attention below the threshold on this side.'));
    else if (!mine.length) box.append(el('p', 'soft', 'Nobody on this side.'));
  }
  figure('who', [el('b', '', 'Share of the drop in attention. '), `Removing a side's signals brings the attention below ${number(who.threshold)}; shares of a side sum to 100 %.`], box, fold(['side', 'component', 'at', 'read', 'channels', 'drop', 'share'], writers.map((w) => [w.side, named(w), tokenNode(w.position), w.kind === 'head' ? tokenNode(w.source) : '–', w.channels.join(', '), w.drop, w.share])));
};
const featureWriters = () => {
  who.features.forEach((f, number_) => {
    const box = el('div', ''), shown = ['query', 'key'].map((side) => [side, f.writers.filter((w) => w.side === side)]);
    box.className = 'featurewriters';
    const rest = ([side, list]) => sum(list.slice(7).map((w) => w.logit)) + (f.rest[side] ?? 0);
    const range = scale(shown.flatMap((one) => [...one[1].slice(0, 7).map((w) => w.logit), rest(one)]));
    for (const one of shown) {
      box.append(sideTitle(one[0]));
      for (const w of one[1].slice(0, 7)) {
        const same = writers.filter((v) => idOf(v) === idOf(w)).map((v) => `w${v.i}`);
        box.append(link(bar({ name: [named(w)], value: w.logit, range, text: signed(w.logit), kind: w.logit < 0 ? 'neg' : one[0], sub: w.kind === 'head' ? ['read ', tokenNode(w.source, 18)] : null }), [idOf(w)], [idOf(w), ...same]));
      }
      box.append(bar({ name: 'the rest', value: rest(one), range, text: signed(rest(one)), kind: 'plain' }));
    }
    $('written').hidden = false;
    const made = figure('writtenby', [el('b', '', el('bdi', '', f.name), '. '), `Each side sums to its logit, ${signed(f.logit)}.`], box, fold(['side', 'component', 'at', 'read', 'logit'], f.writers.map((w) => [w.side, named(w), tokenNode(w.position), w.kind === 'head' ? tokenNode(w.source) : '–', w.logit])));
    made.id = `featurewriters${number_}`;
  });
};

// --- Proof -------------------------------------------------------------------------------------------------------------
const ticks = (low, high) => {
  const step = [1, 2, 5, 10].map((m) => m * 10 ** Math.floor(Math.log10((high - low) / 4))).find((s) => (high - low) / s <= 5);
  const made = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step) made.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return made;
};
// Dots along one axis: a row per state of the model; a ring is a prediction, small dots are controls.
const panel = (title, rows, from, to, { label = 128, wide = 372, digits = 3 } = {}) => {
  const low = from, high = to, height = 30, top = 26, right = wide - 92;
  const x = (v) => label + (right - label) * (v - low) / (high - low || 1);
  const made = svg('svg', { viewBox: `0 0 ${wide} ${top + rows.length * height + 26}`, role: 'img', class: 'panel', style: `width:${wide * 1.1}px` });
  made.setAttribute('aria-label', `${title}: ${rows.map((r) => `${r.name} ${r.text}`).join('; ')}`);
  svg('text', { x: 0, y: 13, class: 'ink', 'font-weight': 600 }, made, title);
  const bottom = top + rows.length * height;
  for (const v of ticks(low, high)) {
    svg('line', { class: 'grid', x1: x(v), x2: x(v), y1: top, y2: bottom }, made);
    svg('text', { x: x(v), y: bottom + 16, 'text-anchor': 'middle' }, made, Number(v.toFixed(6)).toString().replace('-', '−'));
  }
  const start = rows[0].dot;
  rows.forEach((row, i) => {
    const y = top + height * (i + 0.5), group = svg('g', {}, made);
    svg('title', {}, group, `${row.name}: ${row.text}`);
    svg('text', { x: 0, y: y + 4, class: 'ink' }, group, row.name);
    if (i && row.dot !== undefined && row.from !== null) svg('line', { class: 'stem', x1: x(row.from ?? start), x2: x(row.dot), y1: y, y2: y }, group);
    (row.cloud ?? []).forEach((v, j) => svg('circle', { class: 'cloud', cx: x(v), cy: y + ((j * 7) % 5 - 2) * 2.6, r: 2.6 }, group));
    if (row.mean !== undefined) {
      svg('line', { class: 'mean', x1: x(row.mean - row.sd), x2: x(row.mean + row.sd), y1: y, y2: y }, group);
      svg('line', { class: 'mean', x1: x(row.mean), x2: x(row.mean), y1: y - 7, y2: y + 7 }, group);
    }
    if (row.dot !== undefined) svg('circle', { class: 'dot', cx: x(row.dot), cy: y, r: 4.2 }, group);
    if (row.ring !== undefined) svg('circle', { class: 'ring', cx: x(row.ring), cy: y, r: 7.4 }, group);
    svg('text', { x: wide, y: y + 4, class: 'ink', 'text-anchor': 'end' }, group, row.text ?? number(row.dot, digits));
  });
  return made;
};
const removed = { query: 'without query side', key: 'without key side', both: 'without both sides' };
const proofFigure = () => {
  const main = proof.tests.find((t) => t.name === 'both') ?? proof.tests[0];
  if (!main) { $('proof').append(el('p', '', proof.verdict)); return; }
  const rows = (field, digits) => [
    { name: 'as it is', dot: proof.before[field], text: fixed(proof.before[field], digits) },
    ...proof.tests.map((t) => ({ name: removed[t.name] ?? t.name, dot: t.observed[field], ring: field === 'attention' ? t.predicted : undefined, text: fixed(t.observed[field], digits) })),
    ...(main.spread ? [{ name: `${main.controls.length} random removals`, cloud: main.controls.map((c) => c[field]), mean: main.spread[field][0], sd: main.spread[field][1], text: `${fixed(main.spread[field][0], digits)} ± ${fixed(main.spread[field][1], digits)}` }] : []),
  ];
  const values = (field) => [proof.before[field], ...proof.tests.map((t) => t.observed[field]), ...main.controls.map((c) => c[field])];
  const top = Math.max(...values('attention'), ...proof.tests.map((t) => t.predicted));
  const lead = values('lead'), low = Math.min(0, ...lead), high = Math.max(0, ...lead), pad = 0.06 * (high - low || 1);
  const three = el('div', 'three',
    panel('Attention of this cell', rows('attention', 3), 0, Math.min(1, top * 1.08)),
    panel(`Probability of ${isolated(short(visible(data.answer.text)))}`, rows('probability', 3), 0, 1),
    panel(`Lead over ${isolated(short(visible(data.answer.wrong)))} (logits)`, rows('lead', 2), low - (low < 0 ? pad : 0), high + pad, { digits: 2 }));
  three.id = 'proofpanels';
  const said = main.percentile === null ? [] : [el('b', '', `${main.percentile.toFixed(0)} %`), ` of ${plural(main.controls.length, 'random removal')} of as many signals in unused channels left the cell more attention.`];
  const columns = ['model', 'signals', 'predicted attention', 'attention', 'probability', 'lead'];
  const line = (name, n, predicted, o) => [name, n, predicted, o.attention, o.probability, o.lead];
  const numbers = [line('as it is', 0, null, proof.before), ...proof.tests.map((t) => line(removed[t.name] ?? t.name, t.signals, t.predicted, t.observed)), ...main.controls.map((c, i) => line(`random ${i + 1}`, main.signals, null, c))];
  figure('proof', ['● observed in the edited forward pass, ', el('span', 'q', '○'), ' predicted by the algebra alone (largest difference ', number(proof.error, 6), '), small dots: random controls, mean ± spread. ', ...said], three, fold(columns, numbers));
};
const featureProof = () => {
  if (!proof.features.length) return;
  const names = proof.features.map((t) => short(`${t.name}, ${t.kind}`, 30));
  const rows = [{ name: 'as it is', dot: proof.before.attention, text: number(proof.before.attention) },
    ...proof.features.map((t, i) => ({ name: names[i], dot: t.observed.attention, ring: t.predicted, cloud: t.controls, text: `${number(t.observed.attention)} · ${t.percentile.toFixed(0)} %` }))];
  const top = Math.max(...rows.flatMap((r) => [r.dot, ...(r.cloud ?? [])]));
  figure('proof', [el('b', '', 'Each feature removed from the query, or swapped between the key and its strongest rival. '), 'Small dots: random subspaces of the same rank; the percentage says how many of them left more attention.'], panel('Attention of this cell', rows, 0, Math.min(1, top * 1.08), { label: 230, wide: 760 }), fold(['feature', 'edit', 'predicted attention', 'attention', 'probability', 'lead', 'percentile'], proof.features.map((t) => [t.name, t.kind, t.predicted, t.observed.attention, t.observed.probability, t.observed.lead, t.percentile])));
};
