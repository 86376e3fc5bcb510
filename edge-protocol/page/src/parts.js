// Parts of a page of one node.

import * as w from './words.js';

export const heading = (text) => w.el('h3', {}, text);
export const pairs = (all) => w.el('table', {}, ...all.filter(([, value]) => value !== null && value !== '').map(([name, value]) =>
  w.el('tr', {}, w.el('th', { scope: 'row' }, name), w.el('td', {}, value))));

export function columns(titles, rows) {
  const kind = (title) => (title.endsWith('#') ? { class: 'number' } : {});
  const plain = (title) => title.replace('#', '');
  const head = titles.map((title) => w.el('th', { scope: 'col', ...kind(title) }, plain(title)));
  const body = rows.map((cells) => w.el('tr', {}, ...cells.map((cell, at) => w.el('td', { 'data-title': plain(titles[at]), ...kind(titles[at]) }, cell))));
  return w.el('table', { class: 'columns' }, w.el('thead', {}, w.el('tr', {}, ...head)), w.el('tbody', {}, ...body));
}

// Replaces the content of `root`. The scroll positions of `scrolled` and of a list in it stay, and the focus where something new has
// the same id.
export function renew(scrolled, root, ...parts) {
  const list = () => root.querySelector('.scroll');
  const [scroll, within, focused] = [scrolled.scrollTop, list()?.scrollTop, root.contains(document.activeElement) ? document.activeElement.id : ''];
  root.replaceChildren(...parts);
  scrolled.scrollTop = scroll;
  if (within && list()) list().scrollTop = within;
  // Views that are hidden may have the same ids.
  if (focused) [...root.querySelectorAll('[id]')].find((one) => one.id === focused)?.focus({ preventScroll: true });
}

// Sets a text that is read aloud when it changes.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A long list that scrolls by itself, also with the keyboard.
export const scroll = (id, label, table) => w.el('div', { class: 'scroll', id, tabindex: '0', role: 'region', 'aria-label': label }, table);

// Bad news when True; of the others False is.
const BAD = ['MemoryPressure', 'DiskPressure', 'PIDPressure', 'NetworkUnavailable', 'UnderVoltage', 'HighTemperature', 'ServicesHandledElsewhere'];

export function condition([type, status, reason, message, since], now) {
  const good = status === (BAD.includes(type) ? 'False' : 'True');
  const shown = status === 'Unknown' ? ['○', status, 'warn'] : [good ? '●' : '▲', status, good ? 'quiet' : 'bad'];
  return [type, w.state(shown), since ? w.when(since, now, '') : '', message || reason];
}
