// Run by scripts/lib/page_test.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';

// The parts of a browser that are used.
const element = () => ({
  textContent: '', heard: {},
  setAttribute(name, value) { this[name] = value; },
  append(...text) { this.textContent += text.join(''); },
  addEventListener(name, hear) { this.heard[name] = hear; },
});
const told = element();
globalThis.document = { createElement: element, getElementById: () => told };
const written = [];
Object.defineProperty(globalThis, 'navigator', { value: { clipboard: { writeText: async (text) => written.push(text) } } });
let later;
globalThis.setTimeout = (act) => { later = act; };

const { copyButton } = await import('./copy.js');

test('a button that copies is named by what it shows, and tells what it did', async () => {
  const button = copyButton('kubectl get pods', 'previous logs');
  assert.deepEqual([button.textContent, button['aria-label']], ['previous logs', 'previous logs: kubectl get pods']);
  await button.heard.click();
  assert.deepEqual(written, ['kubectl get pods']);
  assert.deepEqual([button.textContent, button['aria-label'], told.textContent], ['copied', 'copied: kubectl get pods', 'copied: kubectl get pods']);
  later();
  assert.deepEqual([button.textContent, told.textContent], ['previous logs', ''], 'the next time is told, too');
});
