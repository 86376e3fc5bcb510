// The filter of the overview: its words, the nodes that match, their order, and its place in the address. Pure.

import * as w from './words.js';

// States by the word after `is:`. `words` follow a number; `kind` is the class of an exception; `test` takes a row.
export const STATES = {
  down: { words: 'down', kind: 'bad', test: (row) => row[w.LINK] === 0 },
  notready: { words: 'not ready', kind: 'bad', test: (row) => row[w.READY] !== 1 },
  conditions: { words: 'with bad conditions', kind: 'warn', test: (row) => row[w.TROUBLES] !== 0 || row[w.STORAGE] === 2 },
  podsnotready: { words: 'with pods not ready', kind: 'warn', test: (row) => row[w.PODS] < row[w.WANTED] },
  rolledback: { words: 'rolled back', kind: 'warn', test: (row) => row[w.UPGRADE] === 2 },
  cordoned: { words: 'cordoned', kind: '', test: (row) => (row[w.HELD] & 1) !== 0 },
  held: { words: 'held', kind: '', test: (row) => (row[w.HELD] & 2) !== 0 },
  up: { words: 'connected', kind: '', test: (row) => row[w.LINK] === 1 },
  otherbridge: { words: 'at another bridge', kind: '', test: (row) => row[w.LINK] === 2 },
};

// Worst last: a state outweighs all before it.
const ORDER = ['held', 'cordoned', 'rolledback', 'podsnotready', 'conditions', 'notready', 'down'];

// 0 for a node without an exception; larger is worse.
export const severity = (row) => ORDER.reduce((sum, name, bit) => sum + (STATES[name].test(row) ? 2 ** bit : 0), 0);

// Words of the cell "Status". The API keeps the last condition of a node that is down.
export function status(row) {
  const [shape, word, kind] = row[w.LINK] === 0 && row[w.READY] === 1 ? ['◐', 'ready (last known)', 'warn'] : w.READIES[row[w.READY]] ?? w.READIES[0];
  const held = w.held(row[w.HELD]);
  return [shape, held ? `${word}, ${held}` : word, kind === 'quiet' && held ? '' : kind];
}

export const split = (text) => text.split(/\s+/).filter(Boolean);

// Test of one word: `is:STATE`, `KEY=VALUE` and `KEY!=VALUE` of a whole label as kubectl has them, or a part of a name, label or version.
function tester(word) {
  // Every object has a `constructor`: only own names are states.
  if (word.startsWith('is:') && Object.hasOwn(STATES, word.slice(3))) return STATES[word.slice(3)].test;
  const label = /^([^=!]+)(!=|==?)(.*)$/.exec(word);
  if (label) {
    const [whole, wanted] = [` ${label[1]}=${label[3]} `, label[2] !== '!='];
    return (row) => (row.tags ??= ` ${row[w.LABELS]} `).includes(whole) === wanted;
  }
  const part = word.toLowerCase();
  return (row) => (row.text ??= `${row[w.NAME]} ${row[w.LABELS]} ${row[w.VERSION]} ${row[w.ARCH]}`.toLowerCase()).includes(part);
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

// Rows by name, in the order of names: `known` with other rows, and without those that are gone.
export function merge(known, rows, gone) {
  const before = known.size;
  for (const row of rows) known.set(row[w.NAME], row);
  // New ones are at the end.
  const all = known.size > before ? new Map([...known].sort(([a], [b]) => compare(a, b))) : known;
  for (const name of gone) all.delete(name);
  return all;
}

// Rows that match all words but `by:LABEL`, which groups (groups.js), in order: by `key` of a row and `way` (1 or -1), without a key the
// worst first; those that are equal stay in their order, so that no names are compared.
export function select(rows, text, key, way = 1) {
  const tests = split(text).filter((word) => !word.startsWith('by:')).map(tester);
  const [of, sign] = key ? [key, way] : [(row) => (row.worst ??= severity(row)), -1];
  const found = [];
  for (const row of rows) {
    if (tests.every((test) => test(row))) found.push([of(row), row]);
  }
  found.sort((a, b) => sign * compare(a[0], b[0]));
  return found.map(([, row]) => row);
}

// The filter after a click on a counter: that state instead of another one, or none if it was chosen already.
export function choose(text, word) {
  const words = split(text);
  const others = words.filter((one) => !one.startsWith('is:'));
  return (words.includes(word) ? others : [...others, word]).join(' ');
}

// Addresses: `#?FILTER`, `#NAME` of a node, `#/jobs`, `#/pods?FILTER`, `#/devices?FILTER`. No name of a node begins with `?` or `/`.
export const filterHref = (text) => (text ? `#?${encodeURI(text)}` : '#');
export const listHref = (view, text) => `#/${view}${text ? `?${encodeURI(text)}` : ''}`;
export const nodeHref = (name) => `#${encodeURIComponent(name)}`;

export function place(hash) {
  let text = '';
  try {
    text = decodeURIComponent(hash.slice(1));
  } catch {
    // Not encoded by this page.
  }
  if (text === '/jobs') return { view: 'jobs' };
  const list = /^\/(pods|devices)(?:\?|$)/.exec(text);
  if (list) return { view: list[1], filter: split(text.slice(list[0].length)).join(' ') };
  if (!text || text.startsWith('?')) return { view: 'nodes', filter: split(text.slice(1)).join(' ') };
  // A login link, opened again.
  if (text.startsWith('token=')) return { view: 'nodes', filter: '' };
  return { view: 'node', name: text };
}
