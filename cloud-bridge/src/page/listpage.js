// A list with a filter that stands in the address. Read again every few seconds while it can be seen.

import { listHref, split } from './filter.js';
import { renew, say } from './parts.js';
import * as w from './words.js';

// Milliseconds between two readings, and after a key until the bridge is asked.
const ANEW = 10000;
const TYPED = 200;

// Others define `path(filter)`, what is asked for, and `shown(data, filter)`: the text of the count, and the elements.
export class ListPage {
  // `view` is its name in the address and its id; `back` gives the address of the overview.
  constructor(root, back, view, title, hint) {
    Object.assign(this, { root, view, home: back, problem: '' });
    this.back = w.el('a', {}, 'All nodes');
    this.search = w.el('input', { type: 'search', id: `${view}-search`, autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false', placeholder: hint });
    this.count = w.el('span', { role: 'status', class: 'quiet' });
    this.tools = w.el('div', { class: 'tools' }, w.el('label', { for: `${view}-search` }, 'Filter'), this.search, this.count);
    this.alert = w.el('p', { role: 'alert', class: 'bad' });
    this.list = w.el('div');
    root.append(w.el('p', {}, this.back), w.el('h2', {}, title), this.tools, this.alert, this.list);
    this.search.addEventListener('input', () => this.typed());
    setInterval(() => this.load(), ANEW);
    document.addEventListener('visibilitychange', () => this.load());
  }

  filter() {
    return split(this.search.value).join(' ');
  }

  open(filter) {
    this.back.href = this.home();
    if (this.filter() !== filter) this.search.value = filter;
    this.draw();
    this.load();
  }

  // The address follows, without an entry in the history for each letter.
  typed() {
    history.replaceState(null, '', listHref(this.view, this.filter()));
    this.draw();
    clearTimeout(this.timer);
    if (this.path(this.filter()) !== this.asked) this.timer = setTimeout(() => this.load(), TYPED);
  }

  async load() {
    const path = this.path(this.filter());
    if (this.root.hidden || document.hidden || (this.busy && path === this.asked)) return;
    [this.busy, this.asked] = [true, path];
    let [data, problem] = [null, ''];
    try {
      const answer = await fetch(path);
      data = await answer.json();
      if (!answer.ok) throw new Error(data.message);
    } catch (error) {
      problem = error.message;
    }
    // Meanwhile something else was asked for.
    if (path !== this.asked) return;
    this.busy = false;
    if (!problem) this.data = data;
    this.problem = problem;
    this.draw();
  }

  draw() {
    const { count, parts } = this.data ? this.shown(this.data, this.filter()) : { count: '', parts: [] };
    say(this.alert, this.problem && `Cannot read the ${this.view}: ${this.problem}`);
    say(this.count, count);
    renew(this.root, this.list, ...parts);
  }
}
