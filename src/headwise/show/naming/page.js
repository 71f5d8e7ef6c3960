// A page of names: filters and order over cards that are all in the page already.
const root = document.documentElement;
const dark = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : dark.matches);
document.getElementById('theme').addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; });
const field = (id) => document.getElementById(id);
const list = field('subjects');
const cards = [...list.children];
const said = new Map(cards.map((card) => [card, card.querySelector('h2').textContent.toLowerCase() + ' ' + card.querySelector('.name').textContent.toLowerCase()]));
const place = new Map(cards.map((card, at) => [card, at]));
const show = () => {
  const words = field('words').value.trim().toLowerCase();
  let shown = 0;
  for (const card of cards) {
    const fits = (!field('verdict').value || card.dataset.verdict === field('verdict').value)
      && (!field('level').value || card.dataset.level === field('level').value)
      && (!words || said.get(card).includes(words));
    card.hidden = !fits;
    shown += fits;
  }
  field('count').textContent = `${shown} of ${cards.length}`;
};
const sort = () => {
  const by = field('order').value;
  const value = (card) => (by === 'place' ? -place.get(card) : Number(card.dataset[by] || -1));
  list.append(...cards.toSorted((a, b) => value(b) - value(a) || place.get(a) - place.get(b)));
};
for (const id of ['verdict', 'level', 'words']) field(id).addEventListener('input', show);
field('order').addEventListener('input', sort);
field('filters').addEventListener('submit', (event) => event.preventDefault());
show();
