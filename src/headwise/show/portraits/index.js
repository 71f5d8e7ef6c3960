// The index of an atlas: filters, search and order over cards that are all in the page already.
const root = document.documentElement;
const dark = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : dark.matches);
document.getElementById('theme').addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; });
const field = (id) => document.getElementById(id);
const list = field('heads');
const cards = [...list.children];
const said = new Map(cards.map((card) => [card, `${card.textContent} ${card.dataset.words}`.toLowerCase()]));
const place = new Map(cards.map((card, at) => [card, at]));
const show = () => {
  const words = field('words').value.trim().toLowerCase();
  let shown = 0;
  for (const card of cards) {
    const fits = (!field('kind').value || card.dataset.kind === field('kind').value)
      && (!field('layer').value || card.dataset.layer === field('layer').value)
      && (!words || said.get(card).includes(words));
    card.hidden = !fits;
    shown += fits;
  }
  field('count').textContent = `${shown} of ${cards.length}`;
};
const sort = () => {
  const by = field('order').value;
  const value = (card) => (by === 'place' ? -place.get(card) : Number(card.dataset[by] || -1e9));
  list.append(...cards.toSorted((a, b) => value(b) - value(a) || place.get(a) - place.get(b)));
};
for (const id of ['kind', 'layer', 'words']) field(id).addEventListener('input', show);
field('order').addEventListener('input', sort);
field('filters').addEventListener('submit', (event) => event.preventDefault());
show();
