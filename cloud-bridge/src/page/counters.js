// Counters of states: buttons that filter.

import { say } from './parts.js';
import * as w from './words.js';

export class Counters {
  // `states` by the word after `is:`, with the words after a number and the class. `press` is called with a state; '' means all.
  constructor(root, states, press) {
    this.states = states;
    this.buttons = ['', ...Object.keys(states)].map((name) => {
      const button = w.el('button', { type: 'button', class: states[name]?.kind || 'quiet' });
      button.addEventListener('click', () => press(name));
      return [name, button];
    });
    root.append(...this.buttons.map(([, button]) => button));
  }

  // `countOf` gives the number in a state, `words` are those of the filter. A state of nothing has no counter, unless it is the filter.
  update(countOf, words, unit) {
    for (const [name, button] of this.buttons) {
      const count = countOf(name);
      const pressed = name ? words.includes(`is:${name}`) : words.length === 0;
      say(button, `${count.toLocaleString()} ${name ? this.states[name].words : count === 1 ? unit : `${unit}s`}`);
      button.hidden = Boolean(name) && count === 0 && !pressed;
      button.setAttribute('aria-pressed', pressed);
    }
  }
}
