// Words for what the bridge says in numbers (board/mod.rs), and elements whose text is never read as markup.

// A row: name, link, since, ready, pods ready, pods wanted, restarts, troubles, storage, upgrade, held, version, architecture, created, labels.
export const [NAME, LINK, SINCE, READY, PODS, WANTED, RESTARTS, TROUBLES, STORAGE, UPGRADE, HELD, VERSION, ARCH, CREATED, LABELS] =
  Array(15).keys();

// Shape, word, class. No state depends on colour alone; the normal is grey.
export const LINKS = [['○', 'down', 'bad'], ['●', 'up', 'quiet'], ['◐', 'other bridge', 'quiet']];
export const READIES = [['○', 'unknown', 'warn'], ['●', 'ready', 'quiet'], ['▲', 'not ready', 'bad']];
export const STORAGES = [['', '', 'quiet'], ['●', 'healthy', 'quiet'], ['▲', 'trouble', 'bad']];
export const UPGRADES = [['', '', 'quiet'], ['●', 'up to date', 'quiet'], ['▲', 'rolled back', 'bad']];
const TROUBLE = ['memory pressure', 'disk pressure', 'PID pressure', 'under-voltage', 'high temperature', 'clock not set'];
const HOLDS = ['', 'cordoned', 'held', 'cordoned, held'];

export const troubles = (bits) => TROUBLE.filter((_, bit) => bits & (1 << bit)).join(', ');
export const held = (number) => HOLDS[number] ?? '';

export function age(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s}s`;
  if (s < 7200) return `${Math.floor(s / 60)}m`;
  if (s < 172800) return `${Math.floor(s / 3600)}h`;
  return `${Math.floor(s / 86400)}d`;
}

// ISO 8601 in UTC, as kubectl writes times.
export const iso = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;

// An age, with the time itself on hover. Both in seconds since 1970.
export function when(seconds, now, suffix = ' ago') {
  if (!Number.isFinite(seconds)) return '';
  const time = iso(seconds);
  return el('time', { datetime: time, title: time }, `${age(now - seconds)}${suffix}`);
}

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
