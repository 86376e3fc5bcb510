// What has changed about a node: drawn, as a list, and in words.

import { scroll } from './parts.js';
import * as w from './words.js';

const SVG = 'http://www.w3.org/2000/svg';
const LEFT = 80;
const LANE = 26;
// Pixels below the lanes: ages.
const FOOT = 22;
// Below this width there is room for fewer ages.
const NARROW = 480;
// Moments that are told of one time.
const MOMENTS = 3;
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

// What happened at a time, give or take `slack` seconds, in words: restarts, upgrades, versions, storage and other marks.
export function momentsAt(changes, marks, seconds, slack) {
  const near = (at) => Math.abs(at - seconds) <= slack;
  const told = changes.filter(([at, kind]) => near(at) && [RESTARTS, UPGRADE, VERSION, STORAGE].includes(kind)).map(([, kind, value]) => TELL[kind](value));
  return [...told, ...marks.filter(([at]) => near(at)).map(([, , text]) => text)].slice(0, MOMENTS).join('; ');
}

export function list(changes, now) {
  const rows = [...changes].reverse().map(([at, kind, value]) =>
    w.el('tr', {}, w.el('td', {}, w.when(at, now)), w.el('td', {}, TELL[kind]?.(value) ?? '')));
  return scroll('changes', 'Changes, newest first', w.el('table', {}, ...rows));
}

// The part [from, to] of the time until `now`, in seconds, `width` pixels wide. `marks` are more that is drawn: when, whether it is bad,
// words. Returns the drawing, the place of a time in pixels and the time of a place.
export function draw(changes, marks, [from, to], now, width) {
  const lanes = ['Link', 'Ready', 'Pods', 'Restarts', 'Conditions', 'Upgrades', ...(marks.length ? ['Events'] : [])];
  const height = lanes.length * LANE + FOOT;
  const room = width - LEFT - 8;
  const x = (at) => LEFT + ((Math.min(Math.max(at, from), to) - from) / (to - from)) * room;
  const root = svg('svg', { class: 'timeline', viewBox: `0 0 ${width} ${height}`, height, 'aria-hidden': 'true' });
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
      const until = all[index + 1]?.[0] ?? now;
      if (at > to || (at < from && until <= from)) return;
      const bar = svg('rect', { class: drawn, x: x(at), y: lane * LANE + 6, width: Math.max(2, x(until) - x(at)), height: LANE - 12 });
      bar.append(svg('title', {}, `${w.iso(at)}: ${TELL[kind](value)}`));
      root.append(bar);
    });
  };
  spans(0, LINK, (value) => ['fill-bad', 'fill-good', 'fill-warn'][value]);
  spans(1, READY, (value) => ['fill-warn', 'fill-good', 'fill-bad'][value]);
  spans(4, TROUBLES, (value) => (value ? 'fill-warn' : ''));
  steps(root, of(PODS), x, [from, to], now);
  const mark = (lane, at, bad, text) => {
    if (at < from || at > to) return;
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
    const at = from + ((to - from) * part) / parts;
    const anchor = part === 0 ? 'start' : part === parts ? 'end' : 'middle';
    const text = now - at < 0.5 ? 'now' : `${w.age(now - at)} ago`;
    root.append(svg('text', { class: 'tick', x: x(at), y: height - 6, 'text-anchor': anchor }, text));
  }
  const cursor = svg('line', { class: 'mark', y1: 0, y2: height - FOOT, visibility: 'hidden' });
  root.append(cursor);
  return { root, cursor, x, timeAt: (place) => from + ((place - LEFT) / room) * (to - from) };
}

// Ready and wanted pods as steps in their lane.
function steps(root, pods, x, [from, to], now) {
  const most = Math.max(1, ...pods.map(([, , value]) => Math.max(upper(value), lower(value))));
  const y = (count) => 3 * LANE - 5 - (count / most) * (LANE - 10);
  const all = pods.map(([at, , value], index) => [at, pods[index + 1]?.[0] ?? now, value]).filter(([at, until]) => at <= to && until >= from);
  for (const [kind, part] of [['wanted', lower], ['ready', upper]]) {
    const points = all.flatMap(([at, until, value]) => [[x(at), y(part(value))], [x(until), y(part(value))]]);
    if (points.length) root.append(svg('polyline', { class: kind, points: points.map((point) => point.join(',')).join(' ') }));
  }
}
