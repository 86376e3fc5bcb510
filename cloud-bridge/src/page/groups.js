// Groups of the overview: nodes by the value of a label that the word `by:LABEL` of the filter names. Pure.

import { STATES, severity, split } from './filter.js';
import * as w from './words.js';

// With more nodes than these, groups are closed until somebody opens them.
const FEW = 100;
// States that are counted in the line of a group, the worst first.
const COUNTED = ['down', 'notready', 'conditions', 'podsnotready', 'rolledback', 'cordoned', 'held'];
const BY = 'by:';
const collator = new Intl.Collator('en', { numeric: true });

// The label of a filter by which it groups; empty for none.
export const groupKey = (text) => split(text).find((word) => word.startsWith(BY))?.slice(BY.length) ?? '';

// The filter without its grouping, and with another one; `key` is empty for none.
export const ungrouped = (text) => split(text).filter((word) => !word.startsWith(BY)).join(' ');
export const groupBy = (text, key) => [...split(ungrouped(text)), ...(key ? [BY + key] : [])].join(' ');

// Names of all labels of these nodes, in order.
export function labelKeys(rows) {
  const found = new Set();
  for (const row of rows) {
    for (const label of split(row[w.LABELS])) found.add(label.slice(0, label.indexOf('=')));
  }
  return [...found].sort(collator.compare);
}

// Value of a label; null without that label.
function valueOf(row, key) {
  const tags = (row.tags ??= ` ${row[w.LABELS]} `);
  const at = tags.indexOf(` ${key}=`);
  if (at < 0) return null;
  const begin = at + key.length + 2;
  return tags.slice(begin, tags.indexOf(' ', begin));
}

// What a line of the table is known by. No name of a node begins with `?`.
export const isGroup = (line) => !Array.isArray(line);
export const lineId = (line) => (isGroup(line) ? line.id : line[w.NAME]);

// Lines of the table: groups, the one with the worst node first, each followed by its nodes if it is open. `rows` are in order;
// `toggled` has the ids of groups that somebody opened or closed.
export function lines(rows, key, toggled) {
  if (!key) return rows;
  const groups = new Map();
  for (const row of rows) {
    const value = valueOf(row, key);
    let group = groups.get(value);
    if (!group) {
      group = { id: value === null ? '?' : `?=${value}`, title: value === null ? `without ${key}` : `${key}=${value}`, rows: [], worst: 0 };
      groups.set(value, group);
    }
    group.rows.push(row);
    group.worst = Math.max(group.worst, (row.worst ??= severity(row)));
  }
  const sorted = [...groups.values()].sort((a, b) => b.worst - a.worst || collator.compare(a.id, b.id));
  const all = [];
  for (const group of sorted) {
    group.open = (rows.length <= FEW) !== toggled.has(group.id);
    all.push(group);
    if (group.open) for (const row of group.rows) all.push(row);
  }
  return all;
}

// How many nodes of a group are in each state that counts: number, words, class. Counted once, when the group is shown.
export function counts(group) {
  group.counts ??= COUNTED.map((name) => [group.rows.filter(STATES[name].test).length, STATES[name].words, STATES[name].kind])
    .filter(([count]) => count > 0);
  return group.counts;
}
