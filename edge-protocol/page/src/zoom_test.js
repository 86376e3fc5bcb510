// Run by scripts/lib/page_test.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { momentsAt } from './timeline.js';
import { holds, next, reveal, zoom } from './zoom.js';

const whole = [1000, 2000];

test('a time stays in its place when the timeline is zoomed', () => {
  assert.deepEqual(zoom(whole, whole, 0.5, 1000), [1000, 1500]);
  assert.deepEqual(zoom(whole, whole, 0.5, 1500), [1250, 1750]);
  assert.deepEqual(zoom([1250, 1750], whole, 2, 1500), [1000, 2000]);
  assert.deepEqual(zoom([1800, 2000], whole, 2, 1800), [1600, 2000], 'at the end it moves');
  assert.deepEqual(zoom(whole, whole, 2, 1500), whole, 'there is no more');
  assert.deepEqual(zoom([1000, 1010], whole, 0.5, 1000), [1000, 1010], 'and no less than ten seconds');
  assert.deepEqual(zoom([0, 4], [0, 4], 0.5, 2), [0, 4], 'of a short time all is shown');
});

test('a part moves as little as it takes to show a time', () => {
  assert.deepEqual(reveal([1200, 1400], whole, 1300), [1200, 1400]);
  assert.deepEqual(reveal([1200, 1400], whole, 1100), [1100, 1300]);
  assert.deepEqual(reveal([1200, 1400], whole, 1900), [1700, 1900]);
  assert.deepEqual(reveal([900, 1100], whole, 900), [1000, 1200], 'what is too old is gone');
});

test('a part holds its ends, also those of fractions', () => {
  for (const begin of [0.1, 1000.3, 1772444400.123]) {
    const [all, part] = [[begin, begin + 100.7], [begin, begin + 33.3]];
    for (const at of [begin + 0.7, begin + 77.7, all[1]]) assert.ok(holds(reveal(part, all, at), at), `${at}`);
    assert.equal(reveal(part, all, all[1])[1], all[1]);
  }
  assert.ok(!holds(whole, 999) && !holds(whole, 2001));
});

test('keys go from change to change and to the ends', () => {
  const times = [1100, 1500, 1500, 1300];
  assert.deepEqual([next(times, 2000, -1, whole), next(times, 1500, -1, whole), next(times, 1100, -1, whole)], [1500, 1300, 1000]);
  assert.deepEqual([next(times, 1000, 1, whole), next(times, 1500, 1, whole)], [1100, 2000]);
});

test('what happened near a time is told', () => {
  const changes = [[1100, 0, 1], [1100, 3, 2], [1200, 7, 0]];
  assert.equal(momentsAt(changes, [[1102, true, 'Pod web: BackOff']], 1101, 5), 'containers were restarted 2 times; Pod web: BackOff');
  assert.equal(momentsAt(changes, [], 1150, 5), '');
});
