// One node: read when it is opened, and again when its row changes.

import { copyButton, nodeCommands } from './copy.js';
import { filterHref, listHref, status } from './filter.js';
import { History } from './history.js';
import { columns, condition, heading, pairs, renew, say } from './parts.js';
import { podCommand, podState } from './podcells.js';
import * as timeline from './timeline.js';
import { NodeUsage, cpu, memory } from './usage.js';
import * as w from './words.js';

// Milliseconds between two readings at least, and without any change.
const SOON = 1000;
const ANYHOW = 10000;

// The value leads to all nodes with that label.
const label = ([key, value]) => [key, value && w.el('a', { href: filterHref(`${key}=${value}`), id: `label-${key}` }, value)];

export class NodePage {
  // `clock` gives seconds since 1970 by the bridge's clock; `back` the address of the overview.
  constructor(root, clock, back) {
    this.root = root;
    this.clock = clock;
    this.back = back;
    this.name = null;
    this.data = null;
    this.read = 0;
    this.usage = new NodeUsage(() => this.render());
    this.history = new History();
    this.alert = w.el('p', { role: 'alert', class: 'bad' });
    this.body = w.el('div');
    root.append(this.alert, this.body);
    new ResizeObserver(() => this.data && this.lines()).observe(root);
    setInterval(() => this.name && Date.now() - this.read > ANYHOW && this.load(), SOON);
  }

  open(name, row) {
    this.name = name;
    this.row = row;
    this.data = null;
    this.problem = '';
    this.usage.open(name);
    this.history.reset();
    this.render();
    this.load();
  }

  close() {
    this.name = null;
    this.data = null;
    this.usage.open(null);
  }

  // Its row is another one now.
  changed(row) {
    this.row = row;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), Math.max(0, this.read + SOON - Date.now()));
  }

  async load() {
    const name = this.name;
    if (!name) return;
    this.read = Date.now();
    try {
      const answer = await fetch(`/api/nodes/${encodeURIComponent(name)}`);
      const data = await answer.json();
      if (this.name !== name) return;
      this.problem = answer.ok ? '' : data.message;
      if (answer.ok) this.data = data;
    } catch {
      if (this.name !== name) return;
      this.problem = 'the bridge does not answer';
    }
    this.render();
  }

  render() {
    const [now, row] = [this.clock(), this.row];
    const held = row ? w.held(row[w.HELD]).split(', ').filter(Boolean) : [];
    const ofNode = w.el('a', { href: listHref('devices', `node=${this.name}`), id: 'devices-of' }, 'Devices of this node');
    const parts = [w.el('p', {}, w.el('a', { href: this.back(), id: 'back' }, 'All nodes'), ' · ', ofNode),
      w.el('h2', {}, this.name, ...held.flatMap((word) => [' ', w.el('span', { class: 'badge' }, word)]))];
    if (row) {
      const up = row[w.LINK] === 1;
      const since = row[w.SINCE] ? [up ? ', for ' : ', last seen ', w.when(row[w.SINCE], now, up ? '' : ' ago')] : [];
      parts.push(w.el('p', {}, 'Link ', w.state(w.LINKS[row[w.LINK]]), ...since, '. Node ', w.state(status(row)),
        `. Pods ready: ${row[w.PODS]} of ${row[w.WANTED]}.`, ...this.used()));
    }
    const commands = nodeCommands(this.name, held.includes('cordoned'));
    if (row && commands.length) {
      parts.push(w.el('ul', { class: 'commands', 'aria-label': 'Commands for this node' },
        ...commands.map((text) => w.el('li', {}, w.el('code', {}, text), ' ', copyButton(text)))));
    }
    say(this.alert, this.problem && `Cannot read the node: ${this.problem}`);
    if (this.data) parts.push(...this.parts(now));
    else if (!this.problem) parts.push(w.el('p', { class: 'quiet' }, 'Loading.'));
    renew(this.root, this.body, ...parts);
    if (this.data) this.lines();
  }

  // What is known of CPU and memory.
  used() {
    const known = [['CPU', cpu(this.usage.node)], ['memory', memory(this.usage.node)]].filter(([, text]) => text);
    return known.length ? [' In use: ', w.el('span', { id: 'used' }, known.map((pair) => pair.join(' ')).join(', ')), '.'] : [];
  }

  parts(now) {
    const { conditions = [], pods = [], system = [], capacity = [], addresses = [], labels = [], link } = this.data;
    const connection = link ? [['Round trip', link.rttMs === undefined ? null : `${link.rttMs} ms`],
      ['Objects', String(link.objects)], ['Waiting to the node', `${link.queueBytes} B`],
      ['Waiting to the API', `${link.reportBytes} B`], ['Last seen', link.lastSeen ? w.when(Date.parse(link.lastSeen) / 1000, now) : null]] : [];
    return [
      heading('Since the bridge started'), this.history.root,
      heading(`Pods (${pods.length})`),
      this.pods(pods, now),
      heading('Conditions'),
      columns(['Condition', 'Status', 'Since', 'Message'], conditions.map((one) => condition(one, now))),
      heading('Changes'), timeline.list(this.data.timeline, now),
      w.el('div', { class: 'facts' },
        w.el('div', {}, heading('System'), pairs(system), heading('Capacity'), pairs(capacity)),
        w.el('div', {}, heading('Link'), pairs([...connection, ...addresses]), heading('Labels'), pairs(labels.map(label)))),
    ];
  }

  // CPU and memory have columns if they are known of any pod.
  pods(pods, now) {
    const known = pods.some(([space, name]) => this.usage.ofPod(space, name));
    const use = known ? ['CPU#', 'Memory#'] : [];
    return columns(['Namespace', 'Pod', 'State', 'Ready', 'Restarts#', 'Age#', ...use, 'Copy a command'], pods.map(([space, name, phase, ready, restarts, since, why]) => {
      const used = this.usage.ofPod(space, name);
      return [space, name, ...podState(phase, ready, restarts, since, why, now), ...(known ? [cpu(used), memory(used)] : []),
        podCommand(space, name, restarts)];
    }));
  }

  lines() {
    this.history.show(this.data.timeline, this.clock());
  }
}
