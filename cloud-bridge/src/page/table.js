// The table of all nodes: sorted and searched here, and of its rows only those in the document that can be seen.

import * as w from './words.js';

const HEIGHT = 28;
// Rows beyond the edges, for smooth scrolling.
const MARGIN = 10;

const plain = (of, kind = () => '') => (row) => [of(row), kind(row)];
const stated = (at, words) => (row) => {
  const [shape, word, kind] = words[row[at]] ?? words[0];
  return [shape ? `${shape} ${word}` : word, kind];
};

// Title, sort key, text and class of the cell.
const COLUMNS = [
  ['Node', (row) => row[w.NAME], plain((row) => row[w.NAME])],
  ['Link', (row) => row[w.LINK], stated(w.LINK, w.LINKS)],
  ['Since', (row) => row[w.SINCE], plain(() => '', () => 'number')],
  ['State', (row) => row[w.READY] || 3, stated(w.READY, w.READIES)],
  ['Pods', (row) => row[w.PODS] - row[w.WANTED] + row[w.WANTED] / 1e6,
    plain((row) => `${row[w.PODS]}/${row[w.WANTED]}`, (row) => (row[w.PODS] < row[w.WANTED] ? 'number warn' : 'number'))],
  ['Restarts', (row) => row[w.RESTARTS], plain((row) => String(row[w.RESTARTS]), () => 'number')],
  ['Pressure', (row) => row[w.TROUBLES],
    plain((row) => (row[w.TROUBLES] ? `▲ ${w.troubles(row[w.TROUBLES])}` : ''), () => 'warn')],
  ['Storage', (row) => row[w.STORAGE], stated(w.STORAGE, w.STORAGES)],
  ['Version', (row) => row[w.VERSION], plain((row) => `${row[w.VERSION]} ${row[w.ARCH]}`)],
  ['Upgrade', (row) => row[w.UPGRADE], stated(w.UPGRADE, w.UPGRADES)],
  ['Labels', (row) => row[w.LABELS],
    plain((row) => (row[w.HELD] ? `[${w.held(row[w.HELD])}] ` : '') + row[w.LABELS], () => 'quiet')],
];
const AGE = 2;

export class Table {
  // `clock` gives seconds since 1970 by the bridge's clock; `open` is called with a name.
  constructor(root, clock, open) {
    this.rows = new Map();
    this.view = [];
    this.sort = [0, 1];
    this.query = '';
    this.chosen = null;
    this.drawn = new Map();
    this.spare = [];
    this.root = root;
    this.clock = clock;
    this.open = open;
    [this.head, this.body] = root.children;
    this.head.append(...COLUMNS.map(([title], at) => {
      const button = w.el('button', { type: 'button' }, title);
      button.addEventListener('click', () => this.sortBy(at));
      return w.el('span', { role: 'columnheader' }, button);
    }));
    root.addEventListener('scroll', () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(root);
    this.body.addEventListener('click', (event) => {
      const row = event.target.closest('.row');
      if (row) { this.choose(row.dataset.name); this.open(row.dataset.name); }
    });
    root.addEventListener('keydown', (event) => this.key(event));
    this.mark();
  }

  all(rows) {
    this.rows = new Map(rows.map((row) => [row[w.NAME], row]));
    this.arrange();
  }

  change(rows, gone) {
    for (const row of rows) this.rows.set(row[w.NAME], row);
    for (const name of gone) this.rows.delete(name);
    this.arrange();
  }

  search(text) {
    this.query = text.trim().toLowerCase();
    this.root.scrollTop = 0;
    this.arrange();
  }

  sortBy(at) {
    this.sort = [at, this.sort[0] === at ? -this.sort[1] : 1];
    this.mark();
    this.arrange();
  }

  mark() {
    [...this.head.children].forEach((cell, at) => {
      const [column, way] = this.sort;
      const here = at === column;
      cell.setAttribute('aria-sort', here ? (way > 0 ? 'ascending' : 'descending') : 'none');
      cell.firstChild.textContent = COLUMNS[at][0] + (here ? (way > 0 ? ' ↑' : ' ↓') : '');
    });
  }

  // What is searched and how it is ordered.
  arrange() {
    const words = this.query.split(/\s+/).filter(Boolean);
    const tests = words.map((word) => {
      const is = word.startsWith('is:') && w.STATES[word.slice(3)];
      return is || ((row) => (row.text ??= `${row[w.NAME]} ${row[w.LABELS]} ${row[w.VERSION]} ${row[w.ARCH]}`.toLowerCase()).includes(word));
    });
    const [column, way] = this.sort;
    const key = COLUMNS[column][1];
    const found = [...this.rows.values()].filter((row) => tests.every((test) => test(row)));
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    found.sort((a, b) => way * order(key(a), key(b)) || order(a[w.NAME], b[w.NAME]));
    this.view = found;
    this.body.style.height = `${found.length * HEIGHT}px`;
    this.root.setAttribute('aria-rowcount', found.length + 1);
    this.draw();
  }

  // Only what can be seen.
  draw() {
    if (!this.root.clientHeight) return;
    const first = Math.max(0, Math.floor(this.root.scrollTop / HEIGHT) - MARGIN);
    const last = Math.min(this.view.length, Math.ceil((this.root.scrollTop + this.root.clientHeight) / HEIGHT) + MARGIN);
    const wanted = new Map();
    for (let at = first; at < last; at += 1) wanted.set(this.view[at][w.NAME], at);
    for (const [name, line] of this.drawn) {
      if (!wanted.has(name)) { this.drawn.delete(name); this.spare.push(line); }
    }
    const now = this.clock();
    for (const [name, at] of wanted) {
      let line = this.drawn.get(name);
      if (!line) {
        line = this.spare.pop() ?? this.line();
        this.drawn.set(name, line);
        line.element.dataset.name = name;
        line.element.hidden = false;
      }
      this.fill(line, this.view[at], at, now);
    }
    for (const line of this.spare) line.element.hidden = true;
    const chosen = this.drawn.get(this.chosen);
    if (chosen) this.root.setAttribute('aria-activedescendant', chosen.element.id);
    else this.root.removeAttribute('aria-activedescendant');
  }

  line() {
    const cells = COLUMNS.map(() => w.el('span', { role: 'gridcell' }));
    const element = w.el('div', { role: 'row', class: 'row', id: `row-${this.body.childElementCount}` }, ...cells);
    this.body.append(element);
    return { element, cells };
  }

  fill({ element, cells }, row, at, now) {
    element.style.transform = `translateY(${at * HEIGHT}px)`;
    element.setAttribute('aria-rowindex', at + 2);
    element.classList.toggle('chosen', row[w.NAME] === this.chosen);
    COLUMNS.forEach(([, , cell], column) => {
      let [text, kind] = cell(row);
      if (column === AGE) text = row[w.SINCE] ? w.age(now - row[w.SINCE]) : '';
      if (cells[column].textContent !== text) { cells[column].textContent = text; cells[column].title = text; }
      if (cells[column].className !== kind) cells[column].className = kind;
    });
  }

  choose(name) {
    this.chosen = name;
    this.draw();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.root.clientHeight / HEIGHT) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === 'Enter' && event.target === this.root && this.chosen) return this.open(this.chosen);
    if (!(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return undefined;
    event.preventDefault();
    const here = this.view.findIndex((row) => row[w.NAME] === this.chosen);
    const to = here < 0 && moves[event.key] > 0 && Number.isFinite(moves[event.key]) ? 0 : here + moves[event.key];
    return this.go(Math.min(this.view.length - 1, Math.max(0, to)));
  }

  go(at) {
    const row = this.view[at];
    if (!row) return;
    const [top, bottom] = [at * HEIGHT, (at + 2) * HEIGHT];
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    if (bottom > this.root.scrollTop + this.root.clientHeight) this.root.scrollTop = bottom - this.root.clientHeight;
    this.choose(row[w.NAME]);
  }
}
