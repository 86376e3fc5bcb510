// Fleet jobs and their progress, read again every few seconds while they are shown.

import { copyButton, jobCommands } from './copy.js';
import { nodeHref } from './filter.js';
import { renew, say } from './parts.js';
import * as w from './words.js';

const ANEW = 5000;
// In the order of the bridge's counts (jobs.rs).
const COUNTED = ['pending', 'in progress', 'successful', 'failed', 'unknown'];
// Parts of the bar from the left: which count, and its class. Pending nodes are the rest.
const PARTS = [[2, 'done'], [3, 'failed'], [4, 'unknown'], [1, 'begun']];
// Without a prototype: `constructor` is no phase.
export const PHASES = { __proto__: null, Completed: ['●', 'completed', 'quiet'], Failure: ['▲', 'failed', 'bad'], InProgress: ['◐', 'in progress', ''],
  Pending: ['○', 'pending', 'quiet'], Unknown: ['○', 'unknown', 'warn'] };

function bar(name, counts, total) {
  const made = w.el('span', { class: 'bar', role: 'img', 'aria-label': `${name}: ${counts[2] + counts[3]} of ${total} nodes ended` });
  for (const [at, kind] of PARTS) {
    if (!counts[at]) continue;
    const part = w.el('span', { class: kind });
    part.style.width = `${(100 * counts[at]) / Math.max(1, total)}%`;
    made.append(part);
  }
  return made;
}

function job({ kind, name, created, phase, reason, atOnce, total, counts, nodes, more }, now) {
  const words = counts.map((count, at) => (count ? `${count.toLocaleString()} ${COUNTED[at]}` : '')).filter(Boolean).join(', ');
  const parts = [
    w.el('h3', {}, `${kind} ${name}: `, w.state(PHASES[phase] ?? ['○', phase || 'not started', 'quiet'])),
    w.el('p', {}, bar(name, counts, total), ` ${total.toLocaleString()} nodes, ${atOnce.toLocaleString()} at a time${words ? `: ${words}` : ''}. Created `,
      w.when(Date.parse(created) / 1000, now), '. ', ...jobCommands(kind.toLowerCase(), name).map((text) => copyButton(text, 'Copy kubectl command'))),
  ];
  if (reason) parts.push(w.el('p', {}, reason));
  const rows = nodes.map(([node, state, why]) => w.el('tr', {},
    w.el('td', {}, w.el('a', { href: nodeHref(node), id: `${kind}-${name}-${node}` }, node)),
    w.el('td', {}, w.state(PHASES[state] ?? ['○', state.toLowerCase(), 'warn'])), w.el('td', {}, why)));
  if (rows.length) {
    const heads = ['Node', 'State', 'Reason'].map((title) => w.el('th', { scope: 'col' }, title));
    parts.push(w.el('table', { 'aria-label': `Nodes of ${name} that have not succeeded` },
      w.el('thead', {}, w.el('tr', {}, ...heads)), w.el('tbody', {}, ...rows)));
  }
  if (more) parts.push(w.el('p', { class: 'quiet' }, `${more.toLocaleString()} more nodes have not succeeded.`));
  return w.el('article', {}, ...parts);
}

export class JobsPage {
  // `clock` gives seconds since 1970 by the bridge's clock; `back` the address of the overview.
  constructor(root, clock, back) {
    Object.assign(this, { root, clock, home: back });
    this.back = w.el('a', {}, 'All nodes');
    this.alert = w.el('p', { role: 'alert', class: 'bad' });
    this.list = w.el('div');
    root.append(w.el('p', {}, this.back), w.el('h2', {}, 'Jobs'), this.alert, this.list);
    setInterval(() => !root.hidden && this.load(), ANEW);
  }

  async load() {
    this.back.href = this.home();
    try {
      const answer = await fetch('/api/jobs');
      const data = await answer.json();
      if (!answer.ok) throw new Error(data.message);
      const jobs = data.jobs.map((one) => job(one, this.clock()));
      renew(this.root, this.list, ...(jobs.length ? jobs : [w.el('p', {}, 'There are no jobs.')]));
      say(this.alert, '');
    } catch (error) {
      say(this.alert, `Cannot read the jobs: ${error.message}`);
    }
  }
}
