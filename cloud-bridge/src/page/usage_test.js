// Run by scripts/lib/page_test.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NodesUsage, NodeUsage, cpu, due, memory, pause } from './usage.js';

// The parts of a browser that are used: `hidden`, and what was asked for.
const asked = [];
let answer = {};
globalThis.document = { hidden: false, addEventListener() {} };
globalThis.setInterval = () => 0;
let lost = false;
globalThis.fetch = async (path) => {
  asked.push(path);
  if (lost) throw new TypeError('Failed to fetch');
  return { ok: answer !== null, status: answer === null ? 403 : 200, json: async () => answer };
};
const since = (begun) => asked.slice(begun);

test('usage is written as kubectl top writes it', () => {
  assert.deepEqual([cpu([250, 5]), memory([250, 340 << 20]), memory([1, null]), cpu(null), memory(null)], ['250m', '340Mi', '', '', '']);
});

test('a node is due after 30 seconds', () => {
  const read = new Map([['a', { at: 1000 }], ['b', { at: 20000 }]]);
  assert.deepEqual(due(read, ['a', 'b', 'c'], 31000), ['a', 'c']);
  assert.equal(due(new Map(), Array.from({ length: 100 }, (_, at) => `n${at}`), 0).length, 64, 'one request has a limit');
});

test('only nodes in view are asked for, and none while the tab is hidden', async () => {
  let [view, begun] = [['a', 'b'], asked.length];
  const usage = new NodesUsage(() => view, () => {});
  document.hidden = true;
  await usage.look();
  assert.deepEqual(since(begun), []);
  document.hidden = false;
  answer = { a: [250, 5] };
  await usage.look();
  await usage.look();
  assert.deepEqual(since(begun), ['/api/usage/a,b'], 'once in 30 s, also a node without a value');
  assert.deepEqual([usage.get('a'), usage.get('b'), usage.any], [[250, 5], null, true]);
  view = ['b', 'c'];
  await usage.look();
  assert.deepEqual(since(begun + 1), ['/api/usage/c'], 'another node came into view');
});

test('a refusal is not followed by more requests', async () => {
  const begun = asked.length;
  const usage = new NodesUsage(() => [`n${asked.length}`], () => {});
  answer = null;
  await usage.look();
  await usage.look();
  assert.equal(since(begun).length, 1);
  assert.equal(usage.any, false);
});

test('a request that fails is soon repeated, and known values stay', async () => {
  assert.deepEqual([0, 1, 2, 3, 40].map(pause), [5000, 10000, 20000, 30000, 30000]);
  const [begun, clock] = [asked.length, Date.now];
  let now = clock();
  Date.now = () => now;
  const usage = new NodesUsage(() => ['a'], () => {});
  answer = { a: [250, 5] };
  await usage.look();
  [lost, now] = [true, now + 30000];
  await usage.look();
  await usage.look();
  assert.deepEqual([since(begun).length, usage.get('a')], [2, [250, 5]]);
  [lost, now, answer] = [false, now + 5000, { a: [251, 5] }];
  await usage.look();
  assert.deepEqual([since(begun).length, usage.get('a')], [3, [251, 5]]);
  Date.now = clock;
});

test('values of another node are not shown', async () => {
  answer = { node: [250, 5], pods: [['ns', 'web', [1, 2]]] };
  const usage = new NodeUsage(() => {});
  usage.open('a');
  await new Promise((done) => { setTimeout(done); });
  assert.deepEqual([usage.node, usage.ofPod('ns', 'web'), usage.ofPod('ns', 'x')], [[250, 5], [1, 2], null]);
  const begun = asked.length;
  await usage.look();
  assert.deepEqual(since(begun), [], 'once in 30 s');
  usage.open('b');
  assert.deepEqual([usage.node, usage.ofPod('ns', 'web')], [null, null]);
});
