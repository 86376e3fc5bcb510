// The page of one device: what the program that serves it tells of its node, part by part as it changes.

import { History } from './history.js';
import { columns, condition, pairs, renew, say, scroll } from './parts.js';
import * as timeline from './timeline.js';
import * as w from './words.js';

const by = (id) => document.getElementById(id);
// Milliseconds without a sign of life (there is one every ten seconds), between two tries, and after which ages are written anew.
const SILENT = 25000;
const AGAIN = [1000, 15000];
const ANEW = 10000;
// Seconds that the drawing shows at most.
const DAY = 86400;

const data = {};
const drawn = new Map();
const drawing = new History();
let ahead = 0;
let heard = 0;
let lost = '';
let pause = AGAIN[0];
let source;
let waiting;

// By the node's clock, in seconds.
const clock = () => (Date.now() + ahead) / 1000;

// It comes behind the # of the address, which no browser sends; it is kept for this tab, and does not stay to be read.
function token() {
  try {
    if (/^#[0-9a-f]{32}$/.test(location.hash)) {
      sessionStorage.setItem('token', location.hash.slice(1));
      history.replaceState(null, '', '/');
    }
    return sessionStorage.getItem('token') ?? '';
  } catch {
    return location.hash.slice(1);
  }
}

const key = token();
const path = (name) => `/api/${name}${key ? `?token=${encodeURIComponent(key)}` : ''}`;

// Only what is different is made anew, so that nobody loses his place in it.
function show(id, made, value) {
  const now = Date.now();
  const before = drawn.get(id);
  const text = JSON.stringify(value);
  if (before && before.text === text && now - before.at < ANEW) return;
  drawn.set(id, { text, at: now });
  renew(by('node'), by(id), ...made(value));
}

function pods(rows) {
  const cells = ([space, name, phase, ready, restarts, since, why, cpu, memory]) => [
    space, name, why ? `${phase}: ${why}` : phase,
    w.state(ready ? ['●', 'yes', 'quiet'] : ['○', 'no', phase === 'Succeeded' ? 'quiet' : 'warn']),
    String(restarts), since ? w.when(since, clock(), '') : '', cpu ?? '', memory ?? ''];
  const titles = ['Namespace', 'Pod', 'State', 'Ready', 'Restarts#', 'Age#', 'CPU %#', 'Memory#'];
  return [rows.length ? columns(titles, rows.map(cells)) : w.el('p', { class: 'quiet' }, 'There are none.')];
}

function events(rows) {
  if (!rows.length) return [w.el('p', { class: 'quiet' }, 'None are known; the daemon keeps those of this boot.')];
  const cells = ([at, bad, object, reason, message, count]) => [
    at ? w.when(at, clock()) : '', w.state(bad ? ['▲', 'warning', 'warn'] : ['', 'normal', 'quiet']), object, reason,
    count > 1 ? `${message} (×${count})` : message];
  return [scroll('events-list', 'Events, newest first', columns(['Time', 'Kind', 'Object', 'Reason', 'Message'], rows.map(cells)))];
}

function summary() {
  const row = data.row;
  const since = row[w.SINCE] ? ` for ${w.age(clock() - row[w.SINCE])}` : '';
  const parts = [['Link', w.LINKS[row[w.LINK]], since], ['Node', w.READIES[row[w.READY]], ''], ['Storage', w.STORAGES[row[w.STORAGE]], ''],
    ['Upgrade', w.UPGRADES[row[w.UPGRADE]], '']].filter(([, state]) => state?.[1]);
  const shown = parts.flatMap(([name, state, more]) => [`${name} `, w.state(state), `${more}. `]);
  const troubles = row[w.TROUBLES] ? [w.state(['▲', w.troubles(row[w.TROUBLES]), 'warn']), '. '] : [];
  return [...shown, ...troubles, `Pods ready: ${row[w.PODS]} of ${row[w.WANTED]}.`];
}

function draw() {
  const now = clock();
  const marks = data.events.filter(([at]) => at).map(([at, bad, object, reason]) => [at, bad, `${object}: ${reason}`]);
  const first = Math.min(now - 60, ...data.timeline.map(([at]) => at), ...marks.map(([at]) => at));
  drawing.show(data.timeline, now, { marks, begin: Math.max(first, now - DAY) });
}

function render() {
  const told = [lost, ...(data.problems ?? [])].filter(Boolean);
  say(by('lost'), told.join('\n'));
  by('lost').hidden = told.length === 0;
  say(by('live'), lost ? 'not live' : data.row ? 'live' : '');
  by('age').textContent = lost && heard ? `${w.age((Date.now() - heard) / 1000)} old` : '';
  if (!data.row) return;
  const name = data.row[w.NAME];
  document.title = name;
  by('name').textContent = name;
  by('summary').replaceChildren(...summary());
  by('pods-title').textContent = `Pods (${data.pods.length})`;
  by('events-title').textContent = `Events (${data.events.length})`;
  show('pods', pods, data.pods);
  for (const id of ['use', 'upgrade', 'link', 'system', 'devices']) show(id, (rows) => [pairs(rows)], data[id]);
  show('conditions', (all) => [columns(['Condition', 'Status', 'Since', 'Message'], all.map((one) => condition(one, clock())))], data.conditions);
  show('events', events, data.events);
  show('timeline', (all) => [timeline.list(all, clock())], data.timeline);
}

function retry(why) {
  source.close();
  lost = why;
  render();
  clearTimeout(waiting);
  waiting = setTimeout(connect, pause);
  pause = Math.min(pause * 2, AGAIN[1]);
  fetch(path('node')).then((answer) => {
    if (answer.status === 401) lost = 'The address lacks the token: open the one that edge-runtime page printed.';
    render();
  }, () => {});
}

function connect() {
  source?.close();
  source = new EventSource(path('stream'));
  source.addEventListener('node', (event) => {
    const part = JSON.parse(event.data);
    heard = Date.now();
    ahead = part.at - heard;
    [lost, pause] = ['', AGAIN[0]];
    const redraw = part.timeline || part.events;
    Object.assign(data, part);
    render();
    if (redraw && data.row) draw();
  });
  source.addEventListener('error', () => retry('The connection to the program that shows this is lost. Trying again.'));
}

new ResizeObserver(() => data.row && draw()).observe(by('node'));
setInterval(() => {
  if (!lost && heard && Date.now() - heard > SILENT) retry('Nothing is heard of the program that shows this. Trying again.');
  render();
}, 1000);
setInterval(() => data.row && draw(), ANEW);
by('drawing').append(drawing.root);
by('node').focus();
connect();
