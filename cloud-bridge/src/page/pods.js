// Pods of all nodes, which the bridge searches (board/search.rs): those that match the filter, the worst first.

import { Counters } from './counters.js';
import { choose, listHref, nodeHref, split } from './filter.js';
import { ListPage } from './listpage.js';
import { columns } from './parts.js';
import { podCommand, podState } from './podcells.js';
import * as w from './words.js';

// By the word after `is:`, in the order of the bridge's counts.
export const STATES = {
  notready: { words: 'not ready', kind: 'warn' },
  failed: { words: 'failed', kind: 'bad' },
  terminating: { words: 'terminating', kind: '' },
  ready: { words: 'ready', kind: '' },
  succeeded: { words: 'succeeded', kind: '' },
};
const ORDER = Object.keys(STATES);

function row([namespace, name, node, phase, ready, restarts, created, reason], now) {
  return [w.el('a', { href: listHref('pods', `namespace=${namespace}`), id: `space-of-${namespace}/${name}` }, namespace), name,
    w.el('a', { href: nodeHref(node), id: `node-of-${namespace}/${name}` }, node),
    ...podState(phase, ready, restarts, created, reason, now), podCommand(namespace, name, restarts)];
}

export class PodsPage extends ListPage {
  // `clock` gives seconds since 1970 by the bridge's clock; `back` the address of the overview.
  constructor(root, clock, back) {
    super(root, back, 'pods', 'Pods', 'name, reason, namespace=NAME, node=NAME, is:notready');
    this.clock = clock;
    const states = w.el('div', { class: 'states', role: 'group', 'aria-label': 'Filter by state' });
    this.counters = new Counters(states, STATES, (name) => { location.hash = listHref('pods', name ? choose(this.filter(), `is:${name}`) : ''); });
    this.tools.before(states);
  }

  path(filter) {
    return `/api/pods?filter=${encodeURIComponent(filter)}`;
  }

  shown({ pods, counts, matched }, filter) {
    const [now, parts, all] = [this.clock(), [], counts.reduce((sum, count) => sum + count, 0)];
    this.counters.update((name) => (name ? counts[ORDER.indexOf(name)] : all), split(filter), 'pod');
    if (pods.length) parts.push(columns(['Namespace', 'Pod', 'Node', 'State', 'Ready', 'Restarts#', 'Age#', 'Copy a command'], pods.map((pod) => row(pod, now))));
    else parts.push(w.el('p', {}, all ? 'No pod matches the filter.' : 'There are no pods on these nodes.'));
    if (matched > pods.length) parts.push(w.el('p', { class: 'quiet' }, `${(matched - pods.length).toLocaleString()} more match: filter for them.`));
    return { count: `${matched.toLocaleString()} of ${all.toLocaleString()} pods`, parts };
  }
}
