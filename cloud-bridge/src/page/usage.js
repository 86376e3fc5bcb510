// CPU and memory of what can be seen: each node is asked for at most every 30 s, and none while the tab is hidden.

// Milliseconds between two readings of a node, between two looks for nodes that are due, without any value, and after a refusal.
const ANEW = 30000;
const LOOK = 5000;
const WITHOUT = 120000;
const REFUSED = 600000;
// Nodes of one request (usage.rs).
const MOST = 64;

// As `kubectl top` writes them. `used`: thousandths of a core, bytes; a node may not count memory.
export const cpu = (used) => (used ? `${used[0]}m` : '');
export const memory = (used) => (used && used[1] !== null ? `${Math.ceil(used[1] / 1048576)}Mi` : '');

// Names that are due at `now`, by `at` of what was read.
export const due = (read, names, now) => names.filter((name) => now - (read.get(name)?.at ?? -Infinity) >= ANEW).slice(0, MOST);

// Pause after so many requests that failed one after another: the network of a laptop changes.
export const pause = (failed) => Math.min(LOOK * 2 ** failed, ANEW);

// What the bridge says; null if it cannot be asked, undefined if it refuses or knows no such thing.
async function ask(path) {
  try {
    const answer = await fetch(path);
    if (answer.ok) return await answer.json();
    return answer.status < 500 ? undefined : null;
  } catch {
    return null;
  }
}

function eachLook(look) {
  setInterval(look, LOOK);
  document.addEventListener('visibilitychange', look);
}

export class NodesUsage {
  // `wanted` gives the names of nodes in view; `known` is called when there are new values.
  constructor(wanted, known) {
    this.wanted = wanted;
    this.known = known;
    this.read = new Map();
    this.any = false;
    this.after = 0;
    this.failed = 0;
    eachLook(() => this.look());
  }

  get(name) {
    return this.read.get(name)?.used ?? null;
  }

  async look() {
    const now = Date.now();
    if (document.hidden || now < this.after) return;
    for (const [name, { at }] of this.read) {
      if (now - at > 2 * ANEW) this.read.delete(name);
    }
    const names = due(this.read, this.wanted(), now);
    if (!names.length) return;
    this.after = Infinity;
    const all = await ask(`/api/usage/${names.join(',')}`);
    if (all === null) {
      this.after = now + pause(this.failed++);
      return;
    }
    this.failed = 0;
    for (const name of names) this.read.set(name, { at: now, used: all?.[name] ?? null });
    const some = Boolean(all) && Object.keys(all).length > 0;
    this.any = all === undefined ? false : this.any || some;
    this.after = all === undefined ? now + REFUSED : some || this.any ? 0 : now + WITHOUT;
    this.known();
  }
}

export class NodeUsage {
  // `known` is called when there are new values.
  constructor(known) {
    this.known = known;
    this.open(null);
    eachLook(() => this.look());
  }

  // Another node, or null.
  open(name) {
    this.name = name;
    this.node = null;
    this.pods = new Map();
    this.after = 0;
    this.failed = 0;
    this.look();
  }

  ofPod(namespace, name) {
    return this.pods.get(`${namespace}/${name}`) ?? null;
  }

  async look() {
    const [name, now] = [this.name, Date.now()];
    if (!name || document.hidden || now < this.after) return;
    this.after = now + ANEW;
    const all = await ask(`/api/nodes/${encodeURIComponent(name)}/usage`);
    if (this.name !== name) return;
    if (all === null) {
      this.after = now + pause(this.failed++);
      return;
    }
    this.failed = 0;
    if (all === undefined) this.after = now + REFUSED;
    this.node = all?.node ?? null;
    this.pods = new Map((all?.pods ?? []).map(([namespace, pod, used]) => [`${namespace}/${pod}`, used]));
    this.known();
  }
}
