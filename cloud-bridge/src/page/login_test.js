// Run by scripts/lib/page_test.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';

test('a login link logs in, also over the open form', async () => {
  const sent = [];
  const form = { elements: { token: { value: '' } }, requestSubmit() { sent.push(this.elements.token.value); } };
  let changed;
  globalThis.document = { forms: [form] };
  globalThis.location = { hash: '#?is:down' };
  globalThis.history = { replaceState: () => { location.hash = ''; } };
  globalThis.window = { addEventListener: (_, look) => { changed = look; } };
  await import('./login.js');
  assert.equal(form.action, '/login#?is:down');
  location.hash = '#token=a.b-c_';
  changed();
  assert.deepEqual(sent, ['a.b-c_']);
  assert.equal(location.hash, '', 'the token is gone from the address');
});
