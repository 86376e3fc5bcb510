// What has changed about a node, drawn and as a list.

import * as w from './words.js';

const SVG = 'http://www.w3.org/2000/svg';
const LEFT = 80;
const LANE = 26;
// Pixels below the lanes: ages, and what was at the pointer.
const FOOT = 42;
// Below this width there is room for fewer ages.
const NARROW = 480;
const HINT = 'Filled: up, ready. Dashed: down. Point at a time for its state.';
const [LINK, READY, PODS, RESTARTS, UPGRADE, TROUBLES, STORAGE, VERSION] = Array(8).keys();
const upper = (value) => value >>> 16;
const lower = (value) => value & 0xffff;

// For the list.
const TELL = [
  (value) => `link ${(w.LINKS[value] ?? w.LINKS[0])[1]}`,
  (value) => `node ${(w.READIES[value] ?? w.READIES[0])[1]}`,
  (value) => `pods ready ${upper(value)} of ${lower(value)}`,
  (value) => (value === 1 ? 'a container was restarted' : `containers were restarted ${value} times`),
  (value) => ['no upgrade', 'upgrade succeeded', 'upgrade rolled back'][value],
  (value) => (value ? w.troubles(value) : 'no bad conditions'),
  (value) => `storage ${['not known', 'healthy', 'in trouble'][value]}`,
  () => 'another version of the programs',
];

function svg(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// State at a time, in words: the last change of each kind until then. Restarts, upgrades and versions are moments.
export function stateAt(changes, seconds) {
  const last = new Map();
  for (const [at, kind, value] of changes) {
    if (at <= seconds && [LINK, READY, PODS, TROUBLES, STORAGE].includes(kind)) last.set(kind, value);
  }
  const shown = [...last].filter(([kind, value]) => kind === LINK || kind === READY || kind === PODS || (kind === STORAGE ? value === 2 : value));
  return shown.sort(([a], [b]) => a - b).map(([kind, value]) => TELL[kind](value)).join(', ');
}

export function list(changes, now) {
  const rows = [...changes].reverse().map(([at, kind, value]) =>
    w.el('tr', {}, w.el('td', {}, w.when(at, now)), w.el('td', {}, TELL[kind]?.(value) ?? '')));
  return w.el('div', { class: 'scroll', tabindex: '0' }, w.el('table', { 'aria-label': 'Changes, newest first' }, ...rows));
}

// `now` in seconds; `width` in pixels. `marks` are more that is drawn: when, whether it is bad, words. Nothing before `begin` is shown.
export function draw(changes, now, width, { marks = [], begin = Math.min(changes[0]?.[0] ?? now, now - 60) } = {}) {
  const lanes = ['Link', 'Ready', 'Pods', 'Restarts', 'Conditions', 'Upgrades', ...(marks.length ? ['Events'] : [])];
  const height = lanes.length * LANE + FOOT;
  const x = (at) => LEFT + (Math.max(0, at - begin) / (now - begin)) * (width - LEFT - 8);
  const words = `${changes.length} changes since ${w.iso(begin)}, listed below.`;
  const root = svg('svg', { class: 'timeline', viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': words });
  lanes.forEach((title, lane) => {
    root.append(svg('text', { x: 6, y: lane * LANE + 18 }, title));
    root.append(svg('line', { class: 'axis', x1: 0, x2: width, y1: (lane + 1) * LANE, y2: (lane + 1) * LANE }));
  });
  const of = (...kinds) => changes.filter(([, kind]) => kinds.includes(kind));
  const spans = (lane, kind, shape) => {
    const all = of(kind);
    all.forEach(([at, , value], index) => {
      const drawn = shape(value);
      if (!drawn) return;
      const [from, to] = [x(at), x(all[index + 1]?.[0] ?? now)];
      if (to <= LEFT && begin > at) return;
      const bar = svg('rect', { class: drawn, x: from, y: lane * LANE + 6, width: Math.max(2, to - from), height: LANE - 12 });
      bar.append(svg('title', {}, `${w.iso(at)}: ${TELL[kind](value)}`));
      root.append(bar);
    });
  };
  spans(0, LINK, (value) => ['fill-bad', 'fill-good', 'fill-warn'][value]);
  spans(1, READY, (value) => ['fill-warn', 'fill-good', 'fill-bad'][value]);
  spans(4, TROUBLES, (value) => (value ? 'fill-warn' : ''));
  steps(root, of(PODS), x, now);
  const mark = (lane, at, bad, text) => {
    if (at < begin) return;
    const line = svg('line', { class: bad ? 'mark-bad' : 'mark', x1: x(at), x2: x(at), y1: lane * LANE + 4, y2: (lane + 1) * LANE - 4 });
    line.append(svg('title', {}, `${w.iso(at)}: ${text}`));
    root.append(line);
  };
  for (const [at, kind, value] of of(RESTARTS, UPGRADE, VERSION, STORAGE)) {
    const lane = kind === RESTARTS ? 3 : kind === STORAGE ? 4 : 5;
    const bad = kind === RESTARTS || value === 2;
    if (kind === STORAGE && value !== 2) continue;
    mark(lane, at, bad, TELL[kind](value));
  }
  for (const [at, bad, text] of marks) mark(6, at, bad, text);
  const parts = width < NARROW ? 2 : 4;
  for (let part = 0; part <= parts; part += 1) {
    const at = begin + ((now - begin) * part) / parts;
    const anchor = part === 0 ? 'start' : part === parts ? 'end' : 'middle';
    const text = part === parts ? 'now' : `${w.age(now - at)} ago`;
    root.append(svg('text', { class: 'tick', x: x(at), y: height - FOOT + 17, 'text-anchor': anchor }, text));
  }
  hover(root, width, height, (place) => {
    const at = begin + ((place - LEFT) / (width - LEFT - 8)) * (now - begin);
    return at < begin || at > now ? '' : `${w.age(now - at)} ago (${w.iso(at)}): ${stateAt(changes, at)}`;
  });
  return root;
}

// A line at the pointer, and what `tell` says of that place in pixels.
function hover(root, width, height, tell) {
  const line = svg('line', { class: 'mark', y1: 0, y2: height - FOOT, visibility: 'hidden' });
  const words = svg('text', { class: 'tick', x: 6, y: height - 7 }, HINT);
  root.append(line, words);
  const show = (place) => {
    const text = place === null ? '' : tell(place);
    words.textContent = text || HINT;
    for (const end of ['x1', 'x2']) line.setAttribute(end, place ?? 0);
    line.setAttribute('visibility', text ? 'visible' : 'hidden');
  };
  const look = (event) => {
    const box = root.getBoundingClientRect();
    show(((event.clientX - box.left) * width) / box.width);
  };
  root.addEventListener('pointerdown', look);
  root.addEventListener('pointermove', look);
  // A finger that is lifted leaves the words to be read.
  root.addEventListener('pointerleave', (event) => event.pointerType !== 'touch' && show(null));
}

// Ready and wanted pods as steps in their lane.
function steps(root, pods, x, now) {
  const most = Math.max(1, ...pods.map(([, , value]) => Math.max(upper(value), lower(value))));
  const y = (count) => 3 * LANE - 5 - (count / most) * (LANE - 10);
  for (const [kind, part] of [['wanted', lower], ['ready', upper]]) {
    const points = pods.flatMap(([at, , value], index) => [[x(at), y(part(value))], [x(pods[index + 1]?.[0] ?? now), y(part(value))]]);
    if (points.length) root.append(svg('polyline', { class: kind, points: points.map((point) => point.join(',')).join(' ') }));
  }
}
