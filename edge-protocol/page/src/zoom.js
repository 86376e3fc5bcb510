// Which part of a timeline is shown. Pure. A part is [from, to] in seconds; `whole` is the part that has everything.

// Shortest part, in seconds.
const LEAST = 10;

// The part of that length that begins at `from`, moved into the whole.
function within(from, length, [begin, end]) {
  const short = Math.min(length, end - begin);
  const start = Math.max(from, begin);
  return start + short >= end ? [end - short, end] : [start, start + short];
}

// Whether a time is in a part; sums of fractions are not exact.
export const holds = ([from, to], at) => at > from - 0.001 && at < to + 0.001;

// `by` below 1 shows less; `at` stays where it is.
export function zoom([from, to], whole, by, at) {
  const length = Math.max(LEAST, (to - from) * by);
  return within(at - ((at - from) / (to - from)) * length, length, whole);
}

// Moved as little as it takes to show `at`.
export function reveal([from, to], whole, at) {
  const start = at < from ? at : at > to ? at - (to - from) : from;
  return within(start, to - from, whole);
}

// The next time in that direction (1 or -1) that is not `at`; the end of the whole without one.
export function next(times, at, way, whole) {
  const others = times.filter((time) => (time - at) * way > 0);
  if (!others.length) return way > 0 ? whole[1] : whole[0];
  return way > 0 ? Math.min(...others) : Math.max(...others);
}
