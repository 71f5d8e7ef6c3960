// A report: draws its figures and switches between light and dark.
const root = document.documentElement;
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
// Text, grid and hover colours belong to the page; the figure brings everything else.
const themed = (layout) => {
  const change = { 'font.color': css('--ink'), 'hoverlabel.bgcolor': css('--bg'), 'hoverlabel.bordercolor': css('--line'),
    'modebar.bgcolor': 'rgba(0,0,0,0)', 'modebar.color': css('--line'), 'modebar.activecolor': css('--soft') };
  const axis = { gridcolor: css('--line'), linecolor: css('--soft'), tickcolor: css('--soft') };
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(key)) for (const a in axis) change[`${key}.${a}`] = axis[a];
    if (/^scene\d*$/.test(key)) for (const d of ['xaxis', 'yaxis', 'zaxis']) {
      change[`${key}.${d}.gridcolor`] = css('--line');
      change[`${key}.${d}.backgroundcolor`] = 'rgba(0,0,0,0)';
    }
  }
  return change;
};
const put = (target, change) => {
  for (const path in change) {
    const keys = path.split('.'); let at = target;
    for (const k of keys.slice(0, -1)) at = at[k] ??= {};
    at[keys.at(-1)] = change[path];
  }
  return target;
};
const plots = [];
for (const holder of document.querySelectorAll('script.spec')) {
  const div = document.getElementById(holder.dataset.for);
  const spec = JSON.parse(holder.textContent);
  const layout = put(spec.layout ?? {}, themed(spec.layout ?? {}));
  // Nothing on this page may offer to send it anywhere.
  Plotly.newPlot(div, spec.data ?? [], layout, { responsive: true, displaylogo: false, displayModeBar: 'hover', modeBarButtonsToRemove: ['lasso2d', 'select2d'], showSendToCloud: false });
  plots.push(div);
}
const repaint = () => plots.forEach((div) => Plotly.relayout(div, themed(div.layout)));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
document.getElementById('theme').addEventListener('click', () => {
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  repaint();
});
