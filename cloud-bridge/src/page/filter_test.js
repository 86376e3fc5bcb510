// Run by scripts/lib/page_test.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeCommands, podCommands } from './copy.js';
import { choose, filterHref, listHref, merge, nodeHref, place, select, severity, status } from './filter.js';
import { PHASES } from './jobs.js';
import { stateAt } from './timeline.js';
import * as w from './words.js';

// A healthy node; `more` by index.
function row(name, more = {}) {
  const made = [name, 1, 100, 1, 2, 2, 0, 0, 1, 1, 0, '0.1.0', 'arm64', 0, 'site=north-1 zone='];
  return Object.assign(made, more);
}
const names = (rows, ...how) => select(merge(new Map(), rows, []).values(), ...how).map((one) => one[w.NAME]);

test('a label filter matches the whole label', () => {
  const rows = [row('a'), row('b', { [w.LABELS]: 'site=north-10 onsite=north-1' }), row('c', { [w.LABELS]: 'zone=x site=north-1' })];
  assert.deepEqual(names(rows, 'site=north-1'), ['a', 'c']);
  assert.deepEqual(names(rows, 'site==north-10'), ['b']);
  assert.deepEqual(names(rows, 'site!=north-1'), ['b']);
  assert.deepEqual(names(rows, 'zone='), ['a']);
  assert.deepEqual(names(rows, 'Site=north-1'), [], 'labels are case-sensitive');
  assert.deepEqual(names(rows, 'NORTH-1'), ['a', 'b', 'c'], 'a word without = is a part');
  assert.deepEqual(names(rows, 'site=north-1 c'), ['c'], 'all words match');
});

test('the worst node comes first', () => {
  const rows = [row('fine'), row('cordoned', { [w.HELD]: 1 }), row('pods', { [w.PODS]: 1 }), row('hot', { [w.TROUBLES]: 16 }),
    row('notready', { [w.READY]: 2 }), row('down', { [w.LINK]: 0 }), row('also-fine')];
  assert.deepEqual(names(rows, ''), ['down', 'notready', 'hot', 'pods', 'cordoned', 'also-fine', 'fine']);
  assert.deepEqual(names(rows, 'is:down'), ['down']);
  assert.deepEqual(names(rows, '', (one) => one[w.NAME], -1)[0], 'pods', 'a column overrides it');
  assert.equal(severity(row('a')), 0);
  assert.ok(severity(row('a', { [w.LINK]: 0 })) > severity(row('a', { [w.READY]: 2, [w.STORAGE]: 2, [w.PODS]: 0, [w.HELD]: 3 })));
});

test('nodes that come and go leave the others in the order of names', () => {
  let known = merge(new Map(), [row('b'), row('d'), row('a')], []);
  const first = known;
  known = merge(known, [row('d', { [w.LINK]: 0 })], ['a']);
  assert.equal(known, first, 'without a new node nothing is sorted');
  known = merge(known, [row('c')], []);
  assert.deepEqual([...known.values()].map((one) => [one[w.NAME], one[w.LINK]]), [['b', 1], ['c', 1], ['d', 0]]);
});

test('ten thousand nodes are filtered in less than 50 ms', () => {
  const rows = Array.from({ length: 10000 }, (_, at) => row(`edge-${10000 + ((at * 7919) % 10000)}`, { [w.LINK]: at % 3, [w.LABELS]: `site=north-${at % 200}` }));
  const known = merge(new Map(), rows, []);
  for (const text of ['', 'north-1', 'site=north-1 is:up']) {
    const took = Array.from({ length: 10 }, () => {
      const begun = performance.now();
      select(known.values(), text);
      return performance.now() - begun;
    });
    assert.ok(Math.min(...took) < 50, `${text}: ${Math.min(...took)} ms`);
  }
});

test('a state that does not exist is a part of a name', () => {
  for (const word of ['is:', 'is:none', 'is:constructor', 'is:__proto__', 'is:toString']) {
    assert.deepEqual(names([row('a'), row(`x${word.toLowerCase()}`)], word), [`x${word.toLowerCase()}`], word);
  }
});

test('a phase that does not exist has no words of its own', () => {
  for (const name of ['constructor', '__proto__', 'toString', '']) assert.equal(PHASES[name], undefined, name);
});

test('readiness of a node that is down is the last known', () => {
  assert.deepEqual(status(row('a')), ['●', 'ready', 'quiet']);
  assert.deepEqual(status(row('a', { [w.LINK]: 0 })), ['◐', 'ready (last known)', 'warn']);
  assert.deepEqual(status(row('a', { [w.HELD]: 1 })), ['●', 'ready, cordoned', '']);
});

test('a filter survives the address', () => {
  for (const text of ['', 'site=north-1 is:down', 'a%b #c?', 'ä &+']) assert.deepEqual(place(filterHref(text)), { view: 'nodes', filter: text });
  assert.deepEqual(place(nodeHref('edge-1')), { view: 'node', name: 'edge-1' });
  assert.deepEqual(place('#/jobs'), { view: 'jobs' });
  assert.deepEqual(place(listHref('pods', 'node=a is:failed')), { view: 'pods', filter: 'node=a is:failed' });
  assert.deepEqual(place('#/podsx'), { view: 'node', name: '/podsx' });
  for (const hash of ['', '#', '#%', '#token=abc']) assert.deepEqual(place(hash), { view: 'nodes', filter: '' }, hash);
});

test('a counter replaces the state of the filter', () => {
  assert.equal(choose('site=a', 'is:down'), 'site=a is:down');
  assert.equal(choose('site=a is:down', 'is:notready'), 'site=a is:notready');
  assert.equal(choose('is:down site=a', 'is:down'), 'site=a');
});

test('commands have only names that a shell reads as they are', () => {
  assert.deepEqual(nodeCommands('edge-1', true), ['kubectl describe node edge-1', 'kubectl uncordon edge-1']);
  for (const name of ['a;b', '-a', 'a b', '$(a)', '']) {
    assert.deepEqual([nodeCommands(name, false), podCommands('ns', name, 1), podCommands(name, 'p', 0)], [[], [], []], name);
  }
  assert.deepEqual(podCommands('ns', 'web', 3).map(([word]) => word), ['describe', 'logs', 'previous logs']);
});

test('the timeline tells the state at a time', () => {
  const changes = [[10, 0, 1], [10, 1, 1], [20, 2, (1 << 16) | 3], [30, 3, 2], [40, 0, 0], [50, 5, 1]];
  assert.equal(stateAt(changes, 9), '');
  assert.equal(stateAt(changes, 35), 'link up, node ready, pods ready 1 of 3');
  assert.equal(stateAt(changes, 60), 'link down, node ready, pods ready 1 of 3, memory pressure');
});
