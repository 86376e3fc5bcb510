// The table of all nodes and their groups. Only lines in view are in the document.

import { AGE, COLUMNS, CPU, MEMORY, version } from './cells.js';
import { merge, nodeHref, select } from './filter.js';
import { fillGroup, groupLine } from './groupline.js';
import { groupKey, isGroup, lineId, lines } from './groups.js';
import { NodesUsage, cpu, memory } from './usage.js';
import * as w from './words.js';

// Height of a row in pixels, until `--row` of the style sheet is read: a phone has rows of two lines.
const HEIGHT = 28;
// Longest version that gets its whole width, in characters.
const LONGEST = 40;
// Rows beyond the edges, for smooth scrolling.
const MARGIN = 10;

export class Table {
  // `clock` gives seconds since 1970 by the bridge's clock; `open` is called with the name of a node.
  constructor(root, clock, open) {
    this.height = HEIGHT;
    this.rows = new Map();
    // Nodes that match the filter, and the lines of them and their groups.
    this.view = [];
    this.lines = [];
    // Groups that were opened or closed.
    this.toggled = new Set();
    // Column and way; none: the worst first.
    this.sort = null;
    this.filter = '';
    this.chosen = null;
    this.drawn = new Map();
    // Elements without a line: of nodes, and of groups.
    this.spare = [[], []];
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
      if (!row) return;
      if (row.classList.contains('group')) this.toggle(row.dataset.name);
      this.choose(row.dataset.name);
    });
    root.addEventListener('keydown', (event) => this.key(event));
    this.mark();
  }

  all(rows) {
    this.rows = merge(new Map(), rows, []);
    this.arrange();
  }

  change(rows, gone) {
    this.rows = merge(this.rows, rows, gone);
    this.arrange();
  }

  search(text) {
    if (groupKey(text) !== groupKey(this.filter)) this.toggled.clear();
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
    this.body.style.height = `${this.lines.length * this.height}px`;
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
    this.root.style.setProperty('--version', `${Math.min(longest, LONGEST)}ch`);
    this.group();
  }

  group() {
    const key = groupKey(this.filter);
    this.lines = lines(this.view, key, this.toggled);
    this.stretch();
    this.root.setAttribute('role', key ? 'treegrid' : 'grid');
    this.root.setAttribute('aria-rowcount', this.lines.length + 1);
    this.draw();
  }

  // Opens a group, or closes it.
  toggle(id) {
    if (!this.toggled.delete(id)) this.toggled.add(id);
    this.group();
  }

  // Connected nodes in view, where there is room for their usage: a phone has none.
  measured() {
    if (!this.root.clientHeight || !this.head.offsetHeight) return [];
    const [first, last] = [this.root.scrollTop, this.root.scrollTop + this.root.clientHeight].map((top) => top / this.height);
    const nodes = this.lines.slice(Math.floor(first), Math.ceil(last)).filter((line) => !isGroup(line));
    return nodes.filter((row) => row[w.LINK] !== 0).map((row) => row[w.NAME]);
  }

  // Only what can be seen.
  draw() {
    if (!this.root.clientHeight) return;
    this.root.classList.toggle('usage', this.usage.any);
    const first = Math.max(0, Math.floor(this.root.scrollTop / this.height) - MARGIN);
    const last = Math.min(this.lines.length, Math.ceil((this.root.scrollTop + this.root.clientHeight) / this.height) + MARGIN);
    const wanted = new Map();
    for (let at = first; at < last; at += 1) wanted.set(lineId(this.lines[at]), at);
    for (const [id, line] of this.drawn) {
      if (!wanted.has(id)) { this.drawn.delete(id); this.spare[line.cells ? 0 : 1].push(line); }
    }
    const now = this.clock();
    for (const [id, at] of wanted) {
      const shown = this.lines[at];
      let line = this.drawn.get(id);
      if (!line) {
        const number = this.body.childElementCount;
        line = this.spare[isGroup(shown) ? 1 : 0].pop() ?? (isGroup(shown) ? groupLine(number) : this.line(number));
        if (!line.element.parentNode) this.body.append(line.element);
        this.drawn.set(id, line);
        line.element.dataset.name = id;
        line.element.hidden = false;
      }
      line.element.style.transform = `translateY(${at * this.height}px)`;
      line.element.setAttribute('aria-rowindex', at + 2);
      if (groupKey(this.filter)) line.element.setAttribute('aria-level', isGroup(shown) ? 1 : 2);
      else line.element.removeAttribute('aria-level');
      line.element.classList.toggle('chosen', id === this.chosen);
      if (isGroup(shown)) fillGroup(line, shown);
      else this.fill(line, shown, now);
    }
    for (const { element } of this.spare.flat()) {
      element.hidden = true;
      element.classList.remove('chosen');
    }
    const chosen = this.drawn.get(this.chosen);
    if (chosen) this.root.setAttribute('aria-activedescendant', chosen.element.id);
    else this.root.removeAttribute('aria-activedescendant');
  }

  line(number) {
    const link = w.el('a', { tabindex: '-1' });
    const cells = COLUMNS.map((_, at) => w.el('span', { role: 'gridcell' }, ...(at === 0 ? [link] : [])));
    const element = w.el('div', { role: 'row', class: 'row', id: `row-${number}` }, ...cells);
    return { element, cells, link };
  }

  fill({ cells, link }, row, now) {
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
    if (event.ctrlKey || event.altKey || event.metaKey) return undefined;
    const here = this.lines.findIndex((line) => lineId(line) === this.chosen);
    const line = this.lines[here];
    if (line && isGroup(line) && event.target === this.root) {
      const other = { ArrowRight: !line.open, ArrowLeft: line.open, Enter: true, ' ': true }[event.key];
      if (other) { event.preventDefault(); return this.toggle(line.id); }
    }
    if (event.key === 'Enter' && event.target === this.root && line) return this.open(this.chosen);
    if (!(event.key in moves)) return undefined;
    event.preventDefault();
    const to = here < 0 && moves[event.key] > 0 && Number.isFinite(moves[event.key]) ? 0 : here + moves[event.key];
    return this.go(Math.min(this.lines.length - 1, Math.max(0, to)));
  }

  // Chooses the first line, unless one that is there is chosen.
  enter() {
    if (!this.lines.some((line) => lineId(line) === this.chosen)) this.go(0);
  }

  go(at) {
    const line = this.lines[at];
    if (!line) return;
    const top = at * this.height;
    const bottom = top + this.height + this.head.offsetHeight;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    if (bottom > this.root.scrollTop + this.root.clientHeight) this.root.scrollTop = bottom - this.root.clientHeight;
    this.choose(lineId(line));
  }
}
