// A report: draws its figures in the colours of the page, light or dark.
const root = document.documentElement;
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const prefersDark = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => root.dataset.theme ? root.dataset.theme === 'dark' : prefersDark.matches;
const { dark: twins, layout: look } = JSON.parse(document.getElementById('look').textContent);
const twin = (colour) => Array.isArray(colour) ? colour.map(twin) : twins[colour] ?? colour;
// A copy with every colour as it is on a dark page; data is shared, not copied.
const darkened = (value) => {
  if (Array.isArray(value)) return value.some((one) => one && typeof one === 'object' && !Array.isArray(one)) ? value.map(darkened) : value;
  if (!value || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) =>
    [key, /color(scale|way)?$/.test(key) && (typeof one === 'string' || Array.isArray(one)) ? twin(one) : darkened(one)]));
};
// Text, grid and hover colours belong to the page; the figure brings everything else.
const themed = (spec) => {
  const { data = [], layout = {} } = isDark() ? darkened(spec) : structuredClone(spec);
  layout.font = { ...layout.font, color: css('--ink') };
  layout.hoverlabel = { ...layout.hoverlabel, bgcolor: css('--bg'), bordercolor: css('--line') };
  layout.modebar = { bgcolor: 'rgba(0,0,0,0)', color: css('--line'), activecolor: css('--soft') };
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(key)) Object.assign(layout[key], { gridcolor: css('--line'), linecolor: css('--soft'), tickcolor: css('--soft') });
  }
  return [data, layout];
};
// A figure brings what differs from the house look; whole again, it is what Plotly draws.
const whole = ({ data, layout }) => {
  const all = { ...look, ...layout };
  for (const key of Object.keys(all)) if (/^[xy]axis\d*$/.test(key)) all[key] = { ...look[key.slice(0, 5)], ...layout[key] };
  return { data, layout: all };
};
// Nothing on this page may offer to send it anywhere.
const settings = { responsive: true, displaylogo: false, displayModeBar: 'hover', modeBarButtonsToRemove: ['lasso2d', 'select2d'], showSendToCloud: false };
const specs = new Map();
for (const holder of document.querySelectorAll('script.spec')) specs.set(document.getElementById(holder.dataset.for), whole(JSON.parse(holder.textContent)));
const drawn = new Set();
const draw = (div) => { drawn.add(div); Plotly.react(div, ...themed(specs.get(div)), settings); };
// A figure in a closed fold has no width yet: it is drawn when the fold opens. One at a time, so that a page of many answers.
const undrawn = () => [...specs.keys()].filter((div) => !drawn.has(div) && !div.closest('details:not([open])'));
const drawOpen = () => { const [next] = undrawn(); if (next) { draw(next); setTimeout(drawOpen); } };
drawOpen();
const repaint = () => drawn.forEach(draw);
prefersDark.addEventListener('change', repaint);
document.getElementById('theme').addEventListener('click', () => {
  root.dataset.theme = isDark() ? 'light' : 'dark';
  repaint();
});
const folds = [...document.querySelectorAll('details.fold')];
for (const fold of folds) fold.addEventListener('toggle', drawOpen);
const openAll = (open) => { for (const fold of folds) fold.open = open; };
const unfold = document.getElementById('unfold');
unfold.hidden = folds.length === 0;
unfold.addEventListener('click', () => openAll(folds.some((fold) => !fold.open)));
addEventListener('beforeprint', () => { openAll(true); undrawn().forEach(draw); });
// A link to a folded section opens it.
const follow = () => { const fold = folds.find((one) => `#${one.id}` === location.hash); if (fold) { fold.open = true; fold.scrollIntoView(); } };
addEventListener('hashchange', follow);
follow();
