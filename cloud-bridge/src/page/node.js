// One node: read when it is opened, and again when its row changes.

import { columns, condition, heading, pairs } from './parts.js';
import * as timeline from './timeline.js';
import * as w from './words.js';

// Milliseconds between two readings at least, and without any change.
const SOON = 1000;
const ANYHOW = 10000;

export class NodePage {
  constructor(root, clock) {
    this.root = root;
    this.clock = clock;
    this.name = null;
    this.data = null;
    this.read = 0;
    new ResizeObserver(() => this.data && this.lines()).observe(root);
    setInterval(() => this.name && Date.now() - this.read > ANYHOW && this.load(), SOON);
  }

  open(name, row) {
    this.name = name;
    this.row = row;
    this.data = null;
    this.problem = '';
    this.render();
    this.load();
  }

  close() {
    this.name = null;
    this.data = null;
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
    const [scroll, now, row] = [this.root.scrollTop, this.clock(), this.row];
    const back = w.el('a', { href: '#' }, 'All nodes');
    const parts = [w.el('p', {}, back), w.el('h2', {}, this.name)];
    if (row) {
      const since = row[w.SINCE] ? `, ${row[w.LINK] === 1 ? 'for' : 'last seen'} ${w.age(now - row[w.SINCE])}${row[w.LINK] === 1 ? '' : ' ago'}` : '';
      parts.push(w.el('p', {}, 'Link ', w.state(w.LINKS[row[w.LINK]]), since, '. Node ', w.state(w.READIES[row[w.READY]]),
        `. Pods ready: ${row[w.PODS]} of ${row[w.WANTED]}.${row[w.HELD] ? ` It is ${w.held(row[w.HELD])}.` : ''}`));
    }
    if (this.problem) parts.push(w.el('p', { role: 'alert', class: 'bad' }, `Not read: ${this.problem}`));
    if (this.data) parts.push(...this.parts(now));
    else if (!this.problem) parts.push(w.el('p', { class: 'quiet' }, 'Loading.'));
    this.root.replaceChildren(...parts);
    if (this.data) this.lines();
    this.root.scrollTop = scroll;
  }

  parts(now) {
    const { conditions = [], pods = [], system = [], capacity = [], addresses = [], labels = [], link } = this.data;
    const connection = link ? [['Round trip', link.rttMs === undefined ? null : `${link.rttMs} ms`],
      ['Objects', String(link.objects)], ['Waiting to the node', `${link.queueBytes} B`],
      ['Waiting to the API', `${link.reportBytes} B`], ['Last seen', link.lastSeen ?? null]] : [];
    this.drawing = w.el('div', {});
    return [
      heading('Since the bridge started'), this.drawing, timeline.list(this.data.timeline),
      heading(`Pods (${pods.length})`),
      columns(['Namespace', 'Pod', 'State', 'Ready', 'Restarts#', 'Age#'], pods.map(([space, name, phase, ready, restarts, since, why]) => [
        space, name, why ? `${phase}: ${why}` : phase, w.state(ready ? ['●', 'yes', 'good'] : ['○', 'no', phase === 'Succeeded' ? 'quiet' : 'warn']),
        String(restarts), since ? w.age(now - since) : ''])),
      heading('Conditions'),
      columns(['Condition', 'Status', 'Since', 'Message'], conditions.map((one) => condition(one, now))),
      w.el('div', { class: 'facts' },
        w.el('div', {}, heading('System'), pairs(system), heading('Capacity'), pairs(capacity)),
        w.el('div', {}, heading('Link'), pairs([...connection, ...addresses]), heading('Labels'), pairs(labels))),
    ];
  }

  lines() {
    this.drawing?.replaceChildren(timeline.draw(this.data.timeline, this.clock(), Math.max(320, this.drawing.clientWidth)));
  }
}
