// The timeline of a node with its parts: hover and arrow keys tell the state of a time, buttons and + and - zoom.

import * as timeline from './timeline.js';
import * as w from './words.js';
import { holds, next, reveal, zoom } from './zoom.js';

const HINT = 'Filled: up, ready. Dashed: down. Point at a time for its state; with the keyboard: arrows, Page Up and Page Down from change to change, + and − zoom, 0 all.';
// How much a step zooms, and moves (part of what is shown).
const [CLOSER, STEP] = [0.5, 0.02];

export class History {
  constructor() {
    const button = (id, word, act) => {
      const made = w.el('button', { type: 'button', id }, word);
      made.addEventListener('click', act);
      return made;
    };
    const tools = w.el('div', { class: 'zoom', role: 'group', 'aria-label': 'Part of the timeline' }, button('zoom-in', 'Zoom in', () => this.zoom(CLOSER)),
      button('zoom-out', 'Zoom out', () => this.zoom(1 / CLOSER)), button('zoom-all', 'All', () => this.all()));
    this.stage = w.el('div', { id: 'time', tabindex: '0', role: 'slider', 'aria-label': 'Timeline', 'aria-describedby': 'time-hint' });
    this.said = w.el('p', { id: 'time-said', class: 'said' });
    this.root = w.el('div', { class: 'history' }, tools, this.stage, this.said, w.el('p', { id: 'time-hint', class: 'muted' }, HINT));
    this.stage.addEventListener('keydown', (event) => this.key(event));
    for (const kind of ['pointermove', 'pointerdown', 'dblclick']) this.stage.addEventListener(kind, (event) => this.pointer(event));
    this.stage.addEventListener('pointerleave', () => { this.hovered = null; this.point(); });
    this.reset();
  }

  // Another node.
  reset() {
    // What is shown instead of everything, the time that was chosen, and the one at the pointer.
    [this.part, this.at, this.hovered, this.data] = [null, null, null, null];
  }

  // `now` and `begin` in seconds; `marks` as `timeline.draw` has them. Nothing before `begin` is shown.
  show(changes, now, { marks = [], begin = Math.min(changes[0]?.[0] ?? now, now - 60) } = {}) {
    this.data = { changes, marks, now, whole: [begin, now] };
    this.draw();
  }

  draw() {
    const { changes, marks, now, whole } = this.data;
    if (this.part) this.part = reveal(this.part, whole, this.part[0]);
    if (this.at !== null) this.at = Math.max(this.at, whole[0]);
    this.shown = this.part ?? whole;
    this.drawn = timeline.draw(changes, marks, this.shown, now, Math.max(320, this.root.clientWidth));
    this.stage.replaceChildren(this.drawn.root);
    this.stage.setAttribute('aria-label', `Timeline, ${changes.length} changes since ${w.iso(whole[0])}, listed below`);
    this.point();
  }

  // Words and line for the time at the pointer, or the chosen one.
  point() {
    if (!this.data) return;
    const { changes, marks, now } = this.data;
    const [from, to] = this.shown;
    const at = this.hovered ?? this.at;
    const seen = at !== null && holds(this.shown, at);
    const happened = seen ? timeline.momentsAt(changes, marks, at, (to - from) / 200) : '';
    const words = seen ? `${w.age(now - at)} ago (${w.iso(at)}): ${[timeline.stateAt(changes, at), happened].filter(Boolean).join('; ')}` : '';
    if (this.said.textContent !== words) this.said.textContent = words;
    const { cursor, x } = this.drawn;
    for (const end of ['x1', 'x2']) cursor.setAttribute(end, seen ? x(at) : 0);
    cursor.setAttribute('visibility', seen ? 'visible' : 'hidden');
    const value = { min: from, max: to, now: seen ? at : to };
    for (const [name, seconds] of Object.entries(value)) this.stage.setAttribute(`aria-value${name}`, Math.round(seconds));
    this.stage.setAttribute('aria-valuetext', words || 'no time chosen');
  }

  choose(at) {
    const { whole } = this.data;
    this.at = Math.min(Math.max(at, whole[0]), whole[1]);
    this.hovered = null;
    if (!this.part) return this.point();
    this.part = reveal(this.part, whole, this.at);
    return this.draw();
  }

  // Around the chosen time, else around the middle.
  zoom(by) {
    if (!this.data) return;
    const [[from, to], whole] = [this.shown, this.data.whole];
    const at = this.at !== null && holds(this.shown, this.at) ? this.at : (from + to) / 2;
    const [begin, end] = zoom([from, to], whole, by, at);
    this.part = end - begin < whole[1] - whole[0] ? [begin, end] : null;
    this.draw();
  }

  all() {
    this.part = null;
    if (this.data) this.draw();
  }

  pointer(event) {
    if (!this.data) return;
    const box = this.stage.getBoundingClientRect();
    const at = this.drawn.timeAt(((event.clientX - box.left) * Math.max(320, this.root.clientWidth)) / box.width);
    const inside = holds(this.shown, at);
    if (event.type === 'dblclick') return this.zoom(CLOSER);
    // A finger that is lifted, or a click, leaves the words to be read.
    if (event.type === 'pointerdown' && inside) this.at = at;
    this.hovered = inside ? at : null;
    return this.point();
  }

  key(event) {
    if (!this.data || event.ctrlKey || event.altKey || event.metaKey) return;
    const { changes, marks, whole } = this.data;
    const [from, to] = this.shown;
    const at = this.at ?? to;
    const jump = (way) => this.choose(next([...changes, ...marks].map(([time]) => time), at, way, whole));
    const acts = {
      ArrowLeft: () => this.choose(at - (to - from) * STEP),
      ArrowRight: () => this.choose(at + (to - from) * STEP),
      PageDown: () => jump(-1),
      PageUp: () => jump(1),
      Home: () => this.choose(whole[0]),
      End: () => this.choose(whole[1]),
      '+': () => this.zoom(CLOSER),
      '=': () => this.zoom(CLOSER),
      '-': () => this.zoom(1 / CLOSER),
      0: () => this.all(),
    };
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    acts[event.key]();
  }
}
