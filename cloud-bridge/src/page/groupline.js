// The line of a group in the table: its label, how many nodes it has, and how many of them are in which state.

import { counts } from './groups.js';
import * as w from './words.js';

// `number` makes the element's id.
export function groupLine(number) {
  const cell = w.el('span', { role: 'gridcell' });
  const element = w.el('div', { role: 'row', class: 'row group', id: `row-${number}` }, cell);
  return { element, cell, text: '' };
}

export function fillGroup(line, group) {
  const shape = group.open ? '▾' : '▸';
  const states = counts(group);
  const text = [shape, group.title, group.rows.length, ...states.flat()].join('\n');
  if (line.text === text) return;
  line.text = text;
  line.element.setAttribute('aria-expanded', group.open);
  const number = `${group.rows.length.toLocaleString()} ${group.rows.length === 1 ? 'node' : 'nodes'}`;
  const told = states.flatMap(([count, words, kind]) => [', ', w.el('span', { class: kind }, `${kind === 'quiet' || !kind ? '' : '▲ '}${count.toLocaleString()} ${words}`)]);
  line.cell.replaceChildren(w.el('span', { 'aria-hidden': 'true' }, `${shape} `), w.el('b', {}, group.title), ` ${number}`, ...told);
}
