"""Decisions about figures: medians, budgets, what host noise spoils, what is slower. Pure.

A row holds one figure of each round: of our build (`ours`), of the build that it is compared with (`against`), of the same
work without a node (`bare`), ours as a multiple of that (`multiples`), the CPU steal meanwhile in percent (`steal`), and why
it failed (`failed`). A round in which a part fails has no figure of it, so the n-th figures of two lists may be of different rounds.
"""
import math
import statistics

# Above this share of stolen CPU time a time says more about the host than about the program, in percent.
STEAL_LIMIT = 3
# Figures of one round are called slower from this difference on, in percent.
SINGLE_ROUND_LIMIT = 5
# Units of figures that steal does not change: sizes and counts. CPU time is not among them: most kernels count a stolen
# moment as time of the process that it interrupted.
HOST_FREE = {"MB", ""}
# Unit of growth within a build, which says nothing about another build: a build that gets faster where there is little grows more.
GROWTH = "% more"


def new_row(group, name, unit, budget=None, times=None, at_least=False):
    """An empty row. `budget` is an absolute limit, `times` a multiple of `bare`; `at_least` makes it a lower limit."""
    kind = {"group": group, "name": name, "unit": unit, "budget": budget, "times": times, "at_least": at_least}
    return kind | {"ours": [], "against": [], "bare": [], "multiples": [], "steal": [], "failed": []}


def same(rows, row):
    """The row of this group and name; `row` itself is added if there is none yet."""
    found = (other for other in rows if (other["group"], other["name"]) == (row["group"], row["name"]))
    if (one := next(found, None)) is None:
        rows.append(one := row)
    return one


def add(rows, row, side, value, bare=None, steal=None):
    """Adds a figure to the row of this group and name. Returns the row."""
    found = same(rows, row)
    found[side].append(value)
    # A budget that is computed in the run may differ between rounds: the last one counts. A row that first failed had none.
    found.update((key, row[key]) for key in ("unit", "budget", "times", "at_least"))
    # Both builds are measured beside the same bare work.
    if bare is not None and side == "ours":
        found["bare"].append(bare)
        if bare:
            found["multiples"].append(value / bare)
    if steal is not None:
        found["steal"].append(steal)
    return found


def ratio(row):
    """Median of our figures as multiples of the bare work of the same round; None without bare work."""
    return statistics.median(row["multiples"]) if row["multiples"] else None


def is_unreliable(row):
    """Whether the host took CPU time away in one of the rounds."""
    return row["unit"] not in HOST_FREE and max(row["steal"], default=0) > STEAL_LIMIT


def is_over(row):
    """Whether the median misses its budget."""
    if not row["ours"]:
        return False
    value = statistics.median(row["ours"])
    if row["budget"] is not None and (value < row["budget"] if row["at_least"] else value > row["budget"]):
        return True
    return row["times"] is not None and (ratio(row) or 0) > row["times"]


def is_slower(row):
    """Whether our build is worse than the other one: in every round than in its worst round, or 5 % with fewer than three."""
    ours, against = row["ours"], row["against"]
    if not ours or not against or row["unit"] == GROWTH:
        return False
    if row["at_least"]:
        ours, against = [-value for value in ours], [-value for value in against]
    if min(len(ours), len(against)) >= 3:
        return min(ours) > max(against)
    before, now = statistics.median(against), statistics.median(ours)
    return now - before > abs(before) * SINGLE_ROUND_LIMIT / 100


def marks(row):
    """What to say beside a row. An unreliable row is neither over its budget nor slower, but it may have failed."""
    failed = ["FAILED"] if row["failed"] else []
    if is_unreliable(row):
        return [*failed, "unreliable"]
    return failed + [word for word, holds in [("OVER", is_over(row)), ("slower", is_slower(row))] if holds]


def stolen(before, after):
    """Percent of the CPU time between two `cpu` lines of /proc/stat that the hypervisor gave to others (proc_stat(5))."""
    # user nice system idle iowait irq softirq steal; guest time is part of user time.
    passed = [now - then for then, now in zip(before[:8], after[:8])]
    return 100 * passed[7] / sum(passed) if sum(passed) > 0 else 0


def spent(before, after):
    """Seconds that the processes of `after` used since `before`: both map a process to its CPU time."""
    return sum(seconds - before.get(process, 0) for process, seconds in after.items())


def grew(first, last):
    """Growth from `first` to `last` in percent; a figure that was 0 has no growth."""
    return (last / first - 1) * 100 if first else 0


def turns(sides, number):
    """The sides in the order of this round: each comes first by turns, so that what the first one warms helps both."""
    number %= len(sides)
    return sides[number:] + sides[:number]


def shown(value):
    """A figure with three digits that count: 0.0531, 1.71, 58,800."""
    if not value:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{min(max(digits, 0), 4)}f}"


def limit(row):
    """The budget as text: absolute, as a multiple of bare, or nothing."""
    least = "at least " if row["at_least"] else ""
    texts = [f"{least}{row['budget']:g}"] if row["budget"] is not None else []
    texts += [f"{row['times']:g} x bare"] if row["times"] is not None else []
    return ", ".join(texts)


def worst_steal(row):
    """The highest steal of all rounds as text."""
    return shown(max(row["steal"])) if row["steal"] else ""


def all_shown(values):
    """The figures of all rounds, in their order."""
    return ", ".join(map(shown, values))
