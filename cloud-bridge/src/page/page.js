// Wires the page: the stream of changes, the views, the address, keys, and messages when the stream is cut.

import { Counters } from './counters.js';
import { DevicesPage } from './devices.js';
import { STATES, choose, filterHref, nodeHref, place, split } from './filter.js';
import { groupBy, groupKey, labelKeys, ungrouped } from './groups.js';
import { JobsPage } from './jobs.js';
import { NodePage } from './node.js';
import { say } from './parts.js';
import { PodsPage } from './pods.js';
import { Table } from './table.js';
import * as w from './words.js';

const by = (id) => document.getElementById(id);
// Milliseconds without a sign of life (the bridge gives one every ten seconds), and between two tries.
const SILENT = 25000;
const AGAIN = [1000, 15000];

// By the bridge's clock.
let ahead = 0;
const clock = () => (Date.now() + ahead) / 1000;

// Of the overview, kept while another view is open.
let filter = '';
const back = () => filterHref(filter);
const site = by('site').textContent.trim() || location.hostname;
by('site').textContent = site;

const table = new Table(by('table'), clock, (name) => { location.hash = nodeHref(name); });
const page = new NodePage(by('node'), clock, back);
const jobs = new JobsPage(by('jobs'), clock, back);
const lists = { pods: new PodsPage(by('pods'), clock, back), devices: new DevicesPage(by('devices'), clock, back) };
const counters = new Counters(by('summary'), STATES, (name) => {
  location.hash = filterHref(name ? choose(filter, `is:${name}`) : groupBy('', groupKey(filter)));
});
let source;
let heard = 0;
let pause = AGAIN[0];
let lost = '';
let api = true;
let begun = false;
let opened = false;
// Nodes of the first rows that are here.
let loading = 0;
let waiting;

function summary() {
  const rows = [...table.rows.values()];
  counters.update((name) => (name ? rows.filter(STATES[name].test).length : rows.length), split(ungrouped(filter)), 'node');
  const empty = begun && rows.length === 0;
  by('summary').hidden = !begun || empty;
  by('empty').hidden = !empty;
  by('table').hidden = empty;
  by('tools').hidden = empty;
  by('none').hidden = empty || !begun || table.view.length > 0;
  const count = ungrouped(filter) && begun ? `${table.view.length.toLocaleString()} of ${rows.length.toLocaleString()} shown` : '';
  say(by('count'), count);
}

// Labels to choose from are looked for when somebody is about to choose: that reads all nodes.
function offerLabels() {
  const [key, known] = [groupKey(filter), labelKeys(table.rows.values())];
  const keys = ['', ...known, ...(key && !known.includes(key) ? [key] : [])];
  if ([...by('group').options].map((one) => one.value).join(' ') !== keys.join(' ')) {
    by('group').replaceChildren(...keys.map((one) => w.el('option', { value: one }, one || 'no label')));
  }
  by('group').value = key;
}

function setFilter(text) {
  filter = text;
  const key = groupKey(filter);
  if (![...by('group').options].some((one) => one.value === key)) by('group').append(w.el('option', { value: key }, key));
  by('group').value = key;
  by('to-nodes').href = back();
  table.search(filter);
  summary();
}

// By typing: the address follows, without an entry in the history for each letter.
function typed() {
  setFilter(split(by('search').value).join(' '));
  history.replaceState(null, '', back());
}

function status() {
  const text = lost ? `${lost} Trying again.`
    : api ? '' : 'The Kubernetes API does not answer the bridge: states of nodes and pods may be old.';
  say(by('why'), text);
  const seconds = w.age((Date.now() - heard) / 1000);
  by('age').textContent = !lost ? '' : heard ? `What is shown is ${seconds} old.` : 'Nothing is known yet.';
  by('lost').hidden = !text;
  const coming = loading ? `loading: ${loading.toLocaleString()} nodes so far` : '';
  say(by('live'), lost ? '○ not live' : begun ? '● live' : coming);
}

function took(data) {
  heard = Date.now();
  ahead = data.at - heard;
  [lost, pause, api, begun] = ['', AGAIN[0], data.api, true];
}

function shown(names) {
  summary();
  status();
  if (page.name && names(page.name)) page.changed(table.rows.get(page.name));
}

function connect() {
  source?.close();
  opened = false;
  source = new EventSource('/api/stream');
  // Rows of a large site, before the last in `all`.
  let parts = [];
  source.addEventListener('part', (event) => {
    heard = Date.now();
    opened = true;
    parts = parts.concat(JSON.parse(event.data).rows);
    loading = parts.length;
    status();
  });
  source.addEventListener('all', (event) => {
    const data = JSON.parse(event.data);
    took(data);
    opened = true;
    table.all(parts.concat(data.rows));
    parts = [];
    shown(() => true);
    performance.mark('rows');
    table.usage.look();
  });
  source.addEventListener('rows', (event) => {
    const data = JSON.parse(event.data);
    took(data);
    const gone = data.gone ?? [];
    table.change(data.rows, gone);
    shown((name) => gone.includes(name) || data.rows.some((row) => row[w.NAME] === name));
  });
  source.addEventListener('tick', (event) => {
    heard = Date.now();
    ahead = Number(event.data) - heard;
    lost = '';
    status();
  });
  source.addEventListener('error', () => retry('The connection to the bridge is lost.'));
}

async function retry(why) {
  source.close();
  lost = why;
  status();
  clearTimeout(waiting);
  waiting = setTimeout(connect, pause);
  pause = Math.min(pause * 2, AGAIN[1]);
  try {
    const answer = await fetch('/api/nodes/-');
    if (answer.status === 401 || answer.status === 403) location.reload();
    else if (answer.status === 404 && !opened && source.readyState === EventSource.CLOSED) {
      lost = 'The bridge refuses another open page: close one.';
      status();
    }
  } catch {
    // The banner says so already.
  }
}

function route() {
  const { view, name, filter: wanted } = place(location.hash);
  // A login link must not stay to be read.
  if (location.hash.startsWith('#token=')) history.replaceState(null, '', '/');
  for (const id of ['overview', 'node', 'jobs', ...Object.keys(lists)]) by(id).hidden = id !== (view === 'nodes' ? 'overview' : view);
  for (const id of ['nodes', 'jobs', ...Object.keys(lists)]) {
    if (id === view) by(`to-${id}`).setAttribute('aria-current', 'page');
    else by(`to-${id}`).removeAttribute('aria-current');
  }
  const titles = { node: [name, site], nodes: [site, 'Nodes'], jobs: [site, 'Jobs'], pods: [site, 'Pods'], devices: [site, 'Devices'] };
  document.title = [...titles[view], 'Sampan'].join(' · ');
  if (view !== 'node') page.close();
  if (view === 'jobs') {
    jobs.load();
    by('jobs').focus();
  } else if (lists[view]) {
    lists[view].open(wanted);
    // What was pressed there keeps the focus.
    if (!by(view).contains(document.activeElement)) by(view).focus();
  } else if (view === 'node') {
    page.open(name, table.rows.get(name));
    by('node').focus();
  } else {
    if (split(by('search').value).join(' ') !== wanted) by('search').value = wanted;
    if (wanted !== filter) setFilter(wanted);
    else table.draw();
    // A counter that was pressed keeps the focus, and so does the choice of a label.
    if (![by('summary'), by('group')].some((one) => one.contains(document.activeElement))) by('table').focus({ preventScroll: true });
  }
}

document.addEventListener('keydown', (event) => {
  const list = Object.values(lists).find((one) => !one.root.hidden);
  const of = list ? list.search : by('search');
  const typing = event.target === of;
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    if (of === by('search') && by('overview').hidden) location.hash = back();
    setTimeout(() => of.select());
  } else if (event.key === 'Escape') {
    if (typing && of.value) { of.value = ''; of.dispatchEvent(new Event('input')); } else if (typing) (list ? list.root : by('table')).focus();
    else if (by('overview').hidden) location.hash = back();
  } else if (event.target === by('search') && (event.key === 'ArrowDown' || event.key === 'Enter')) {
    event.preventDefault();
    by('table').focus();
    table.enter();
  }
});
by('search').addEventListener('input', typed);
for (const about of ['pointerdown', 'focus']) by('group').addEventListener(about, offerLabels);
by('group').addEventListener('change', () => { location.hash = filterHref(groupBy(filter, by('group').value)); });
window.addEventListener('hashchange', route);
setInterval(() => {
  if (!lost && heard && Date.now() - heard > SILENT) retry('The bridge sends nothing.');
  status();
  if (!by('overview').hidden) table.draw();
}, 1000);
route();
connect();
