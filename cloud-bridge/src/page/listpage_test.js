// Run by scripts/lib/page_test.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';

// The parts of a browser that are used.
class Element {
  constructor() { Object.assign(this, { textContent: '', value: '', children: [], heard: {} }); }
  setAttribute(name, value) { this[name] = value; }
  append(...all) { this.children.push(...all); }
  before() {}
  replaceChildren(...all) { this.children = all; }
  addEventListener(name, hear) { this.heard[name] = hear; }
  contains() { return false; }
  querySelector() { return null; }
}
globalThis.document = { hidden: false, activeElement: null, createElement: () => new Element(), addEventListener() {} };
globalThis.history = { replaceState(_state, _title, address) { this.address = address; } };
globalThis.setInterval = () => 0;
globalThis.setTimeout = (act) => { globalThis.later = act; };
globalThis.clearTimeout = () => { globalThis.later = undefined; };
const asked = [];
globalThis.fetch = (path) => new Promise((answer) => {
  asked.push({ path, answer: async (ok, data) => { answer({ ok, json: async () => data }); for (let n = 0; n < 9; n += 1) await null; } });
});

const { ListPage } = await import('./listpage.js');
const { listHref } = await import('./filter.js');

class Things extends ListPage {
  constructor() { super(new Element(), () => '#', 'things', 'Things', 'name'); }
  path(filter) { return `/api/things?filter=${filter}`; }
  shown({ found }, filter) { return { count: `${found.length} for ${filter}`, parts: found }; }
}
function type(page, text) {
  page.search.value = text;
  page.search.heard.input();
}

test('a list shows the answer to the newest filter', async () => {
  const page = new Things();
  page.open('');
  type(page, 'a');
  globalThis.later();
  assert.equal(history.address, listHref('things', 'a'));
  const [first, second] = asked.splice(0);
  assert.deepEqual([first.path, second.path], ['/api/things?filter=', '/api/things?filter=a']);
  await second.answer(true, { found: ['a'] });
  await first.answer(true, { found: ['a', 'b'] });
  assert.deepEqual([page.list.children, page.count.textContent], [['a'], '1 for a'], 'a late answer is dropped');
});

test('a list asks once at a time and keeps its content when that fails', async () => {
  const page = new Things();
  page.open('');
  page.load();
  const [first, ...more] = asked.splice(0);
  assert.equal(more.length, 0);
  await first.answer(true, { found: ['a'] });
  page.load();
  await asked.pop().answer(false, { message: 'no right' });
  assert.deepEqual([page.list.children, page.alert.textContent], [['a'], 'Cannot read the things: no right']);
  page.load();
  await asked.pop().answer(true, { found: [] });
  assert.deepEqual([page.list.children, page.alert.textContent], [[], '']);
  document.hidden = true;
  page.load();
  assert.equal(asked.length, 0, 'nobody looks');
  document.hidden = false;
});
