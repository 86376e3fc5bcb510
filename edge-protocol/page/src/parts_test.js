// Run by scripts/lib/page_test.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { renew, say } from './parts.js';

// The parts of a browser that are used. `list` is the list that scrolls by itself.
class View {
  constructor(...ids) { this.fill(ids); }
  fill(ids) {
    this.children = ids.map((id) => ({ id, focus() { document.activeElement = this; } }));
    this.list = { scrollTop: 0 };
  }
  contains(one) { return this.children.includes(one); }
  querySelector() { return this.list; }
  querySelectorAll() { return this.children; }
  replaceChildren(...ids) { this.fill(ids); this.scrollTop = 0; }
}

test('new content keeps the focus and the scroll positions of its view', () => {
  globalThis.document = { activeElement: null };
  const view = new View('a', 'b');
  document.activeElement = view.children[1];
  [view.scrollTop, view.list.scrollTop] = [70, 30];
  renew(view, view, 'a', 'b');
  assert.equal(document.activeElement, view.children[1]);
  assert.deepEqual([view.scrollTop, view.list.scrollTop], [70, 30]);
  const elsewhere = { id: 'a' };
  document.activeElement = elsewhere;
  renew(view, view, 'a');
  assert.equal(document.activeElement, elsewhere, 'what has the focus elsewhere keeps it');
});

test('a text is set only if it is another one', () => {
  let set = 0;
  const element = { get textContent() { return 'a'; }, set textContent(_) { set += 1; } };
  say(element, 'a');
  assert.equal(set, 0);
  say(element, 'b');
  assert.equal(set, 1);
});
