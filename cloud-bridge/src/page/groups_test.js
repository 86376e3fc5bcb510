// Run by scripts/lib/page_test.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { filterHref, place, select } from './filter.js';
import { counts, groupBy, groupKey, labelKeys, lineId, lines, ungrouped } from './groups.js';
import * as w from './words.js';

function row(name, labels, more = {}) {
  return Object.assign([name, 1, 100, 1, 2, 2, 0, 0, 1, 1, 0, '0.1.0', 'arm64', 0, labels], more);
}
const shown = (rows, text, toggled = []) => lines(select(rows, text), groupKey(text), new Set(toggled)).map(lineId);

test('nodes are grouped by the whole label, the worst group first', () => {
  const rows = [row('a', 'site=north-10'), row('b', 'onsite=x site=north-2'), row('c', 'zone=x', { [w.LINK]: 0 }), row('d', 'site=north-2 zone=')];
  assert.deepEqual(shown(rows, 'by:site'), ['?', 'c', '?=north-2', 'b', 'd', '?=north-10', 'a']);
  assert.deepEqual(shown(rows, 'by:zone'), ['?=x', 'c', '?', 'a', 'b', '?=', 'd'], 'a label without a value is a group of its own');
  assert.deepEqual(shown(rows, 'by:site is:up'), ['?=north-2', 'b', 'd', '?=north-10', 'a'], 'the other words filter');
  assert.deepEqual(shown(rows, 'is:up'), ['a', 'b', 'd']);
  assert.deepEqual(shown(rows, 'by:'), ['c', 'a', 'b', 'd'], 'while it is typed');
});

test('groups of many nodes are closed until they are opened', () => {
  const rows = Array.from({ length: 101 }, (_, at) => row(`n${at}`, `site=${at % 2}`));
  assert.deepEqual(shown(rows, 'by:site'), ['?=0', '?=1']);
  assert.equal(shown(rows, 'by:site', ['?=1']).length, 2 + 50);
  assert.equal(shown(rows.slice(1), 'by:site').length, 2 + 100);
  assert.equal(shown(rows.slice(1), 'by:site', ['?=1']).length, 2 + 50, 'and a few are open until they are closed');
});

test('a group counts its states', () => {
  const rows = [row('a', 'site=x', { [w.LINK]: 0 }), row('b', 'site=x', { [w.READY]: 2 }), row('c', 'site=x')];
  assert.deepEqual(counts(lines(rows, 'site', new Set())[0]), [[1, 'down', 'bad'], [1, 'not ready', 'bad']]);
});

test('the grouping is a word of the filter and survives the address', () => {
  assert.equal(groupKey('is:down by:topology.kubernetes.io/zone x'), 'topology.kubernetes.io/zone');
  assert.equal(groupKey('standby:x by'), '');
  assert.equal(groupBy('is:down by:site', 'zone'), 'is:down by:zone');
  assert.equal(groupBy('is:down by:site', ''), 'is:down');
  assert.equal(ungrouped('by:site'), '');
  const text = 'is:down by:topology.kubernetes.io/zone';
  assert.deepEqual(place(filterHref(text)), { view: 'nodes', filter: text });
});

test('labels to choose from are those of the nodes', () => {
  assert.deepEqual(labelKeys([row('a', 'site=x zone='), row('b', 'a.b/c=d=e site=y'), row('c', '')]), ['a.b/c', 'site', 'zone']);
});

test('ten thousand nodes are grouped in less than 50 ms', () => {
  const rows = Array.from({ length: 10000 }, (_, at) => row(`edge-${at}`, `site=north-${at % 200} kubernetes.io/arch=arm64 zone=z${at % 7}`));
  const view = select(rows, '');
  const took = Array.from({ length: 10 }, () => {
    const begun = performance.now();
    lines(view, 'site', new Set()).slice(0, 40).forEach(counts);
    return performance.now() - begun;
  });
  assert.ok(Math.min(...took) < 50, `${Math.min(...took)} ms`);
});
