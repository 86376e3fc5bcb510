// Fleet jobs: how far each is, read again every few seconds while they are shown.

import * as w from './words.js';

const ANEW = 5000;
// In the order of the bridge's counts (jobs.rs).
const COUNTED = ['waiting', 'under way', 'done', 'failed', 'not known'];
const PHASES = { Completed: ['●', 'completed', 'good'], Failure: ['▲', 'failed', 'bad'], InProgress: ['◐', 'under way', 'quiet'] };

function job({ kind, name, created, phase, reason, total, counts, nodes }) {
  const words = counts.map((count, at) => (count ? `${count.toLocaleString()} ${COUNTED[at]}` : '')).filter(Boolean).join(', ');
  const done = counts[2] + counts[3];
  const bar = w.el('progress', { max: Math.max(1, total), value: done, 'aria-label': `${name}: ${done} of ${total} nodes` });
  const parts = [
    w.el('h3', {}, `${kind} ${name}: `, w.state(PHASES[phase] ?? ['○', phase || 'not begun', 'quiet'])),
    w.el('p', {}, bar, ` ${total.toLocaleString()} nodes${words ? `: ${words}` : ''}. Made ${w.time(Date.parse(created) / 1000)}.`),
  ];
  if (reason) parts.push(w.el('p', {}, reason));
  const rows = nodes.map(([node, state, why]) => w.el('tr', {},
    w.el('td', {}, w.el('a', { href: `#${encodeURIComponent(node)}` }, node)),
    w.el('td', {}, w.state(PHASES[state] ?? ['○', state.toLowerCase(), 'warn'])), w.el('td', {}, why)));
  if (rows.length) parts.push(w.el('table', { 'aria-label': `Nodes of ${name} under way or failed` }, ...rows));
  return w.el('article', {}, ...parts);
}

export class JobsPage {
  constructor(root) {
    this.root = root;
    setInterval(() => !root.hidden && this.load(), ANEW);
  }

  async load() {
    let parts;
    try {
      const answer = await fetch('/api/jobs');
      const data = await answer.json();
      if (!answer.ok) throw new Error(data.message);
      parts = data.jobs.length ? data.jobs.map(job) : [w.el('p', {}, 'There are no jobs.')];
      this.kept = parts;
    } catch (error) {
      parts = [w.el('p', { role: 'alert', class: 'bad' }, `Not read: ${error.message}`), ...(this.kept ?? [])];
    }
    const scroll = this.root.scrollTop;
    this.root.replaceChildren(w.el('p', {}, w.el('a', { href: '#' }, 'All nodes')), w.el('h2', {}, 'Jobs'), ...parts);
    this.root.scrollTop = scroll;
  }
}
