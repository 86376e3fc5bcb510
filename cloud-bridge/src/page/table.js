// The table of all nodes. Only rows in view are in the document.

import { nodeHref, select, status } from './filter.js';
import { NodesUsage, cpu, memory } from './usage.js';
import * as w from './words.js';

// Height of a row in pixels, until `--row` of the style sheet is read: a phone has rows of two lines.
const HEIGHT = 28;
// Longest version that gets its whole width, in characters.
const VERSION = 40;
// Rows beyond the edges, for smooth scrolling.
const MARGIN = 10;

const plain = (of, kind = () => '') => (row) => [of(row), kind(row)];
const stated = (of) => (row) => {
  const [shape, word, kind] = of(row);
  return [shape ? `${shape} ${word}` : word, kind];
};
const among = (at, words) => stated((row) => words[row[at]] ?? words[0]);
const version = (row) => `${row[w.VERSION]} ${row[w.ARCH]}`;

// Title, sort key, text and class of the cell. The name is a link, the time is counted on, and usage is known only of nodes in view.
const COLUMNS = [
  ['Node', (row) => row[w.NAME], plain((row) => row[w.NAME])],
  ['Link', (row) => row[w.LINK], among(w.LINK, w.LINKS)],
  ['Since', (row) => row[w.SINCE], plain(() => '', () => 'number quiet')],
  ['Status', (row) => row[w.READY] || 3, stated(status)],
  ['Pods', (row) => row[w.PODS] - row[w.WANTED] + row[w.WANTED] / 1e6,
    plain((row) => `${row[w.PODS]}/${row[w.WANTED]}`, (row) => (row[w.PODS] < row[w.WANTED] ? 'number warn' : 'number quiet'))],
  ['Restarts', (row) => row[w.RESTARTS], plain((row) => String(row[w.RESTARTS]), () => 'number quiet')],
  ['Conditions', (row) => row[w.TROUBLES],
    plain((row) => (row[w.TROUBLES] ? `▲ ${w.troubles(row[w.TROUBLES])}` : ''), () => 'warn')],
  ['Storage', (row) => row[w.STORAGE], among(w.STORAGE, w.STORAGES)],
  ['Version', (row) => row[w.VERSION], plain(version, () => 'quiet')],
  ['Upgrade', (row) => row[w.UPGRADE], among(w.UPGRADE, w.UPGRADES)],
  ['CPU', null, plain(() => '', () => 'number quiet')],
  ['Memory', null, plain(() => '', () => 'number quiet')],
  ['Labels', (row) => row[w.LABELS], plain((row) => row[w.LABELS], () => 'quiet')],
];
const [AGE, CPU, MEMORY] = [2, 10, 11];

export class Table {
  // `clock` gives seconds since 1970 by the bridge's clock; `open` is called with the name of a node.
  constructor(root, clock, open) {
    this.height = HEIGHT;
    this.rows = new Map();
    this.view = [];
    // Column and way; none: the worst first.
    this.sort = null;
    this.filter = '';
    this.chosen = null;
    this.drawn = new Map();
    this.spare = [];
    this.root = root;
    this.clock = clock;
    this.open = open;
    [this.head, this.body] = root.children;
    this.usage = new NodesUsage(() => this.measured(), () => this.draw());
    this.head.append(...COLUMNS.map(([title, key], at) => {
      if (!key) return w.el('span', { role: 'columnheader', class: 'number' }, title);
      const button = w.el('button', { type: 'button' }, title);
      button.addEventListener('click', () => this.sortBy(at));
      return w.el('span', { role: 'columnheader' }, button);
    }));
    root.addEventListener('scroll', () => this.draw(), { passive: true });
    new ResizeObserver(() => this.measure()).observe(root);
    this.body.addEventListener('click', (event) => {
      const row = event.target.closest('.row');
      if (row) this.choose(row.dataset.name);
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
    this.filter = text;
    this.root.scrollTop = 0;
    this.arrange();
  }

  // Ascending, descending, then the worst first again.
  sortBy(at) {
    const [column, way] = this.sort ?? [];
    this.sort = column !== at ? [at, 1] : way > 0 ? [at, -1] : null;
    this.mark();
    this.arrange();
  }

  measure() {
    this.height = parseFloat(getComputedStyle(this.root).getPropertyValue('--row')) || HEIGHT;
    this.stretch();
    this.draw();
  }

  stretch() {
    this.body.style.height = `${this.view.length * this.height}px`;
  }

  mark() {
    [...this.head.children].forEach((cell, at) => {
      if (!COLUMNS[at][1]) return;
      const [column, way] = this.sort ?? [];
      const here = at === column;
      cell.setAttribute('aria-sort', here ? (way > 0 ? 'ascending' : 'descending') : 'none');
      cell.firstChild.textContent = COLUMNS[at][0] + (here ? (way > 0 ? ' ↑' : ' ↓') : '');
    });
  }

  arrange() {
    const [column, way] = this.sort ?? [];
    this.view = select(this.rows.values(), this.filter, COLUMNS[column]?.[1], way);
    let longest = 0;
    for (const row of this.rows.values()) longest = Math.max(longest, version(row).length);
    this.root.style.setProperty('--version', `${Math.min(longest, VERSION)}ch`);
    this.stretch();
    this.root.setAttribute('aria-rowcount', this.view.length + 1);
    this.draw();
  }

  // Connected nodes in view, where there is room for their usage: a phone has none.
  measured() {
    if (!this.root.clientHeight || !this.head.offsetHeight) return [];
    const [first, last] = [this.root.scrollTop, this.root.scrollTop + this.root.clientHeight].map((top) => top / this.height);
    return this.view.slice(Math.floor(first), Math.ceil(last)).filter((row) => row[w.LINK] !== 0).map((row) => row[w.NAME]);
  }

  // Only what can be seen.
  draw() {
    if (!this.root.clientHeight) return;
    this.root.classList.toggle('usage', this.usage.any);
    const first = Math.max(0, Math.floor(this.root.scrollTop / this.height) - MARGIN);
    const last = Math.min(this.view.length, Math.ceil((this.root.scrollTop + this.root.clientHeight) / this.height) + MARGIN);
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
    const link = w.el('a', { tabindex: '-1' });
    const cells = COLUMNS.map((_, at) => w.el('span', { role: 'gridcell' }, ...(at === 0 ? [link] : [])));
    const element = w.el('div', { role: 'row', class: 'row', id: `row-${this.body.childElementCount}` }, ...cells);
    this.body.append(element);
    return { element, cells, link };
  }

  fill({ element, cells, link }, row, at, now) {
    element.style.transform = `translateY(${at * this.height}px)`;
    element.setAttribute('aria-rowindex', at + 2);
    element.classList.toggle('chosen', row[w.NAME] === this.chosen);
    const name = row[w.NAME];
    if (link.textContent !== name) { link.textContent = name; link.href = nodeHref(name); }
    // The link covers the row, and shows what the row may cut off.
    const title = [name, w.troubles(row[w.TROUBLES]), version(row), row[w.LABELS]].filter(Boolean).join('\n');
    if (link.title !== title) link.title = title;
    COLUMNS.forEach(([, , cell], column) => {
      if (column === 0) return;
      let [text, kind] = cell(row);
      if (column === CPU) text = cpu(this.usage.get(name));
      if (column === MEMORY) text = memory(this.usage.get(name));
      if (column === AGE) text = row[w.SINCE] ? w.age(now - row[w.SINCE]) : '';
      if (cells[column].textContent !== text) cells[column].textContent = text;
      if (cells[column].className !== kind) cells[column].className = kind;
    });
  }

  choose(name) {
    this.chosen = name;
    this.draw();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.root.clientHeight / this.height) - 2);
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
    const top = at * this.height;
    const bottom = top + this.height + this.head.offsetHeight;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    if (bottom > this.root.scrollTop + this.root.clientHeight) this.root.scrollTop = bottom - this.root.clientHeight;
    this.choose(row[w.NAME]);
  }
}
