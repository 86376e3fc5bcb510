// Devices with their last reported values.

import { nodeHref, split } from './filter.js';
import { ListPage } from './listpage.js';
import { columns } from './parts.js';
import * as w from './words.js';

// Devices in the document; a filter brings others.
const MOST = 100;

// States that a device reports. Without a prototype: `constructor` is no state.
export const STATES = { __proto__: null, ok: ['●', 'ok', 'quiet'], online: ['●', 'online', 'quiet'], offline: ['○', 'offline', 'bad'],
  unhealthy: ['▲', 'unhealthy', 'bad'], unknown: ['○', 'unknown', 'warn'] };

const silent = ({ properties }) => properties.every(([, , value]) => value === null);
// By the word after `is:`, the worst first.
const TESTS = { __proto__: null,
  unhealthy: ({ state }) => state === 'unhealthy',
  offline: ({ state }) => state === 'offline',
  stale: ({ stale }) => stale,
  unknown: ({ state }) => state === 'unknown',
  silent,
};
const ORDER = Object.keys(TESTS);
const severity = (device) => {
  const at = ORDER.findIndex((name) => TESTS[name](device));
  return at < 0 ? ORDER.length : at;
};

const FIELDS = ['node', 'model', 'namespace'];

// Test of one word: `is:STATE`, `node=NAME` and the like, or a part of a name, node, model or property.
function tester(word) {
  if (word.startsWith('is:') && TESTS[word.slice(3)]) return TESTS[word.slice(3)];
  const [field, value] = [word.split('=', 1)[0], word.slice(word.indexOf('=') + 1)];
  if (word.includes('=') && FIELDS.includes(field)) return (device) => device[field] === value;
  const part = word.toLowerCase();
  return (device) => [`${device.namespace}/${device.name}`, device.node, device.model, ...device.properties.map(([name]) => name)]
    .some((text) => text.toLowerCase().includes(part));
}

// Devices that match all words, the worst first, then by namespace and name.
export function choose(devices, text) {
  const tests = split(text).map(tester);
  const found = devices.filter((device) => tests.every((test) => test(device))).map((device) => [severity(device), `${device.namespace}/${device.name}`, device]);
  found.sort((a, b) => a[0] - b[0] || (a[1] < b[1] ? -1 : 1));
  return found.map(([, , device]) => device);
}

// `desired` is told while it differs.
function property([name, desired, value, at], now) {
  const parts = [w.el('b', {}, name), ' ', value === null ? w.el('span', { class: 'quiet' }, 'nothing reported') : value];
  if (desired !== null && desired !== value) parts.push(w.el('span', { class: 'warn' }, ` ▲ wanted: ${desired}`));
  if (value !== null) parts.push(' ', at === null ? w.el('span', { class: 'quiet' }, 'clock not set') : w.el('span', { class: 'quiet' }, w.when(at / 1000, now)));
  return w.el('li', {}, ...parts);
}

function row(device, now) {
  const { namespace, name, node, model, state, stale, properties, more } = device;
  const told = state ? [w.state(STATES[state] ?? ['○', state, 'warn'])] : [];
  if (stale) told.push(' ', w.state(['▲', 'stale: the node is silent', 'warn']));
  const values = properties.map((one) => property(one, now));
  if (more) values.push(w.el('li', { class: 'quiet' }, `${more.toLocaleString()} more properties`));
  return [w.el('span', {}, w.el('b', {}, name), ` ${namespace}`),
    node ? w.el('a', { href: nodeHref(node), id: `node-of-${namespace}/${name}` }, node) : w.el('span', { class: 'quiet' }, 'none'),
    model, w.el('span', {}, ...told), w.el('ul', { class: 'values' }, ...values)];
}

export class DevicesPage extends ListPage {
  // `clock` gives seconds since 1970 by the bridge's clock; `back` the address of the overview.
  constructor(root, clock, back) {
    super(root, back, 'devices', 'Devices', 'name, property, node=NAME, is:stale');
    this.clock = clock;
  }

  path() {
    return '/api/devices';
  }

  shown({ devices, more }, filter) {
    const [found, now, parts] = [choose(devices, filter), this.clock(), []];
    if (more) parts.push(w.el('p', { class: 'warn' }, `Only the first ${devices.length.toLocaleString()} devices by namespace and name are read.`));
    if (found.length) parts.push(columns(['Device', 'Node', 'Model', 'State', 'Properties'], found.slice(0, MOST).map((device) => row(device, now))));
    else parts.push(w.el('p', {}, devices.length ? 'No device matches the filter.' : 'There are no devices.'));
    if (found.length > MOST) parts.push(w.el('p', { class: 'quiet' }, `${(found.length - MOST).toLocaleString()} more match: filter for them.`));
    return { count: `${found.length.toLocaleString()} of ${devices.length.toLocaleString()} devices`, parts };
  }
}
