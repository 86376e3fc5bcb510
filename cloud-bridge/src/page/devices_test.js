// Run by scripts/lib/page_test.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { choose, STATES } from './devices.js';
import { listHref, place } from './filter.js';

const device = (name, more = {}) => ({ namespace: 'water', name, node: 'edge-1', model: 'meter', state: 'online', stale: false,
  properties: [['level', null, '4.8', 1000]], more: 0, ...more });
const names = (devices, text) => choose(devices, text).map((one) => one.name);

test('the worst device comes first', () => {
  const devices = [device('fine'), device('silent', { properties: [['level', '5', null, null]] }), device('unknown', { state: 'unknown' }),
    device('stale', { stale: true }), device('offline', { state: 'offline' }), device('unhealthy', { state: 'unhealthy' }), device('also-fine')];
  assert.deepEqual(names(devices, ''), ['unhealthy', 'offline', 'stale', 'unknown', 'silent', 'also-fine', 'fine']);
  for (const state of ['unhealthy', 'offline', 'stale', 'unknown', 'silent']) assert.deepEqual(names(devices, `is:${state}`), [state]);
});

test('a filter of devices matches a whole node and parts of names', () => {
  const devices = [device('a'), device('b', { node: 'edge-10' }), device('c', { properties: [['Valve', null, '1', 1]] })];
  assert.deepEqual(names(devices, 'node=edge-1'), ['a', 'c']);
  assert.deepEqual(names(devices, 'edge-1'), ['a', 'b', 'c']);
  assert.deepEqual(names(devices, 'VALVE node=edge-1'), ['c'], 'all words match');
  assert.deepEqual(names(devices, 'namespace=water model=meter water/b'), ['b']);
  for (const word of ['is:constructor', 'is:', 'constructor=x', 'x=y']) assert.deepEqual(names(devices, word), [], word);
  assert.equal(STATES.constructor, undefined);
});

test('a filter of devices survives the address', () => {
  for (const text of ['', 'node=edge-1 is:stale', 'a%b #c?']) assert.deepEqual(place(listHref('devices', text)), { view: 'devices', filter: text });
});
