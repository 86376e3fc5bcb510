// Words for what the bridge says in numbers (board/mod.rs), and elements whose text is never read as markup.

// A row: name, link, since, ready, pods ready, pods wanted, restarts, troubles, storage, upgrade, held, version, architecture, created, labels.
export const [NAME, LINK, SINCE, READY, PODS, WANTED, RESTARTS, TROUBLES, STORAGE, UPGRADE, HELD, VERSION, ARCH, CREATED, LABELS] =
  Array(15).keys();

// Shape, word, class: none of them depends on colour.
export const LINKS = [['○', 'down', 'bad'], ['●', 'up', 'good'], ['◐', 'other bridge', 'quiet']];
export const READIES = [['○', 'unknown', 'warn'], ['●', 'ready', 'good'], ['▲', 'not ready', 'bad']];
export const STORAGES = [['', '', 'quiet'], ['●', 'healthy', 'good'], ['▲', 'trouble', 'bad']];
export const UPGRADES = [['', '', 'quiet'], ['●', 'in force', 'good'], ['▲', 'went back', 'bad']];
const TROUBLE = ['memory', 'disk', 'processes', 'voltage', 'heat', 'clock'];
const HOLDS = ['', 'cordoned', 'held', 'cordoned, held'];

export const troubles = (bits) => TROUBLE.filter((_, bit) => bits & (1 << bit)).join(', ');
export const held = (number) => HOLDS[number] ?? '';

// What `is:` finds.
export const STATES = {
  up: (row) => row[LINK] === 1,
  down: (row) => row[LINK] === 0,
  elsewhere: (row) => row[LINK] === 2,
  notready: (row) => row[READY] !== 1,
  missing: (row) => row[PODS] < row[WANTED],
  trouble: (row) => row[TROUBLES] !== 0 || row[STORAGE] === 2,
  wentback: (row) => row[UPGRADE] === 2,
  held: (row) => row[HELD] !== 0,
};

export function age(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s}s`;
  if (s < 7200) return `${Math.floor(s / 60)}m`;
  if (s < 172800) return `${Math.floor(s / 3600)}h`;
  return `${Math.floor(s / 86400)}d`;
}

export const time = (seconds) => new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: 'short', timeStyle: 'medium' });

// Children are elements or text.
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function state([shape, word, kind]) {
  const made = el('span', { class: kind });
  if (shape) made.append(el('span', { 'aria-hidden': 'true' }, `${shape} `));
  made.append(word);
  return made;
}
