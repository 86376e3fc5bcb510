// Counters in the header: buttons that filter the overview.

import { STATES, choose, split } from './filter.js';
import { groupBy, groupKey, ungrouped } from './groups.js';
import * as w from './words.js';

export class Counters {
  // `press` is called with the new filter.
  constructor(root, press) {
    this.filter = '';
    this.buttons = ['', ...Object.keys(STATES)].map((name) => {
      const button = w.el('button', { type: 'button', class: STATES[name]?.kind || 'quiet' });
      button.addEventListener('click', () => press(name ? choose(this.filter, `is:${name}`) : groupBy('', groupKey(this.filter))));
      return [name, button];
    });
    root.append(...this.buttons.map(([, button]) => button));
  }

  // A state that no node is in has no counter, unless it is the filter.
  update(rows, filter) {
    this.filter = filter;
    const words = split(ungrouped(filter));
    for (const [name, button] of this.buttons) {
      const count = name ? rows.filter(STATES[name].test).length : rows.length;
      const pressed = name ? words.includes(`is:${name}`) : words.length === 0;
      const text = `${count.toLocaleString()} ${name ? STATES[name].words : count === 1 ? 'node' : 'nodes'}`;
      if (button.textContent !== text) button.textContent = text;
      button.hidden = Boolean(name) && count === 0 && !pressed;
      button.setAttribute('aria-pressed', pressed);
    }
  }
}
