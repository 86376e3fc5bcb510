// Wires the page: the stream of news, what is shown of it, keys, and what is said when it is cut.

import { JobsPage } from './jobs.js';
import { NodePage } from './node.js';
import { Table } from './table.js';
import * as w from './words.js';

const by = (id) => document.getElementById(id);
// Milliseconds without a sign of life (the bridge gives one every ten seconds), and between two tries.
const SILENT = 25000;
const AGAIN = [1000, 15000];

// By the bridge's clock.
let ahead = 0;
const clock = () => (Date.now() + ahead) / 1000;

const table = new Table(by('table'), clock, (name) => { location.hash = encodeURIComponent(name); });
const page = new NodePage(by('node'), clock);
const jobs = new JobsPage(by('jobs'));
let source;
let heard = 0;
let pause = AGAIN[0];
let lost = '';
let api = true;
let begun = false;
let opened = false;
let waiting;

function summary() {
  const rows = [...table.rows.values()];
  const count = (test) => rows.filter(test).length.toLocaleString();
  const parts = [`${rows.length.toLocaleString()} nodes`, `${count(w.STATES.up)} connected`, `${count(w.STATES.down)} down`,
    `${count(w.STATES.notready)} not ready`, `${count(w.STATES.trouble)} in trouble`];
  by('summary').textContent = parts.join(', ');
  const empty = begun && rows.length === 0;
  by('empty').hidden = !empty;
  by('table').hidden = empty;
  by('tools').hidden = empty;
  by('none').hidden = empty || !begun || table.view.length > 0;
}

function status() {
  const text = lost ? `${lost} Trying again.`
    : api ? '' : 'The Kubernetes API does not answer the bridge: states of nodes and pods may be old.';
  // An alert is read aloud when it changes: not every second.
  if (by('why').textContent !== text) by('why').textContent = text;
  const seconds = w.age((Date.now() - heard) / 1000);
  by('age').textContent = !lost ? '' : heard ? `What is shown is ${seconds} old.` : 'Nothing is known yet.';
  by('lost').hidden = !text;
  by('live').textContent = lost ? 'not live' : begun ? 'live' : '';
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
  source.addEventListener('all', (event) => {
    const data = JSON.parse(event.data);
    took(data);
    opened = true;
    table.all(data.rows);
    shown(() => true);
    performance.mark('rows');
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
    // It is away: that is said already.
  }
}

function route() {
  let name = '';
  try {
    name = decodeURIComponent(location.hash.slice(1));
  } catch {
    // No name of a node.
  }
  const isJobs = name === '/jobs';
  by('overview').hidden = Boolean(name);
  by('node').hidden = !name || isJobs;
  by('jobs').hidden = !isJobs;
  document.title = isJobs ? 'Jobs' : name ? `${name}: nodes` : 'Nodes';
  if (isJobs) {
    page.close();
    jobs.load();
    by('jobs').focus();
  } else if (name) {
    page.open(name, table.rows.get(name));
    by('node').focus();
  } else {
    page.close();
    table.draw();
    by('table').focus({ preventScroll: true });
  }
}

document.addEventListener('keydown', (event) => {
  const typing = event.target === by('search');
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    if (location.hash.length > 1) location.hash = '';
    setTimeout(() => by('search').select());
  } else if (event.key === 'Escape') {
    if (typing && by('search').value) { by('search').value = ''; table.search(''); summary(); } else if (typing) by('table').focus();
    else if (location.hash.length > 1) location.hash = '';
  } else if (typing && (event.key === 'ArrowDown' || event.key === 'Enter')) {
    event.preventDefault();
    by('table').focus();
    if (!table.view.some((row) => row[w.NAME] === table.chosen)) table.go(0);
  }
});
by('search').addEventListener('input', () => { table.search(by('search').value); summary(); });
by('states').textContent = Object.keys(w.STATES).join(', ');
window.addEventListener('hashchange', route);
setInterval(() => {
  if (!lost && heard && Date.now() - heard > SILENT) retry('Nothing is heard of the bridge.');
  status();
  if (!by('overview').hidden) table.draw();
}, 1000);
route();
connect();
