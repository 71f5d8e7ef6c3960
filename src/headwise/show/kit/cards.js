// Cards that are all in the page already: every select of the form filters them, words search them, one orders them.
// The list names in data-cards which parts of a card are searched; empty means all of it.
const root = document.documentElement;
const dark = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : dark.matches);
const field = (id) => document.getElementById(id);
field('theme').addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; });
const list = document.querySelector('[data-cards]');
const cards = [...list.children];
const filters = [...document.querySelectorAll('#filters select')].filter((one) => one.id !== 'order');
const searched = (card) => (list.dataset.cards ? [...card.querySelectorAll(list.dataset.cards)] : [card]);
const words = (card) => [...searched(card).map((one) => one.textContent), card.dataset.words ?? ''].join(' ').toLowerCase();
const said = new Map(cards.map((card) => [card, words(card)]));
const place = new Map(cards.map((card, at) => [card, at]));
const show = () => {
  const asked = field('words').value.trim().toLowerCase();
  let shown = 0;
  for (const card of cards) {
    const fits = filters.every((one) => !one.value || card.dataset[one.id] === one.value) && said.get(card).includes(asked);
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
for (const one of [...filters, field('words')]) one.addEventListener('input', show);
field('order').addEventListener('input', sort);
field('filters').addEventListener('submit', (event) => event.preventDefault());
show();
