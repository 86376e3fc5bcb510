"""What every measurement uses: where things are, the table of figures, waiting."""
import json
import os
import socket
import sys
import traceback

import figures
import news
from meters import Steal

REPO, WORK, NAMES = sys.argv[1], sys.argv[2], set(sys.argv[3:])
# Folders of the programs that are measured, and of another build that is measured in turns with them.
BIN, AGAINST = os.environ["SAMPAN_BIN"], os.environ.get("BENCH_AGAINST")
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
# The OCI runtime, of the node and of the bare work.
RUNTIME = os.environ.get("BENCH_RUNTIME", "runc")
EDGE, BRIDGE = f"{BIN}/edge-runtime", f"{BIN}/cloud-bridge"
IMAGE = "docker.io/library/busybox:latest"
rows = []


class Now:
    """What is measured at the moment: the build (`ours` or `against`), the suite, the steal since the last figure."""

    side, group, steal = "ours", "", Steal()


def begin(side, group):
    """The next figures belong to this build and suite."""
    Now.side, Now.group, Now.steal = side, group, Steal()


def wanted(name):
    return not NAMES or name in NAMES


def row(name, value, unit, budget=None, bare=None, at_least=False, times=None, steal=None):
    """Adds a figure. `bare` is the same work without a node, `times` a budget as a multiple of it, `at_least` makes the
    budget a lower limit. `steal` is the steal while it was measured; without it the steal since the figure before counts."""
    steal = Now.steal.percent() if steal is None else steal
    Now.steal = Steal()
    kind = figures.new_row(Now.group, name, unit, budget, times, at_least)
    figures.add(rows, kind, Now.side, value, bare, steal)
    print(f"    {name}: {value:.3f} {unit}".rstrip(), flush=True)


def failed(what, error):
    """Adds a failed row."""
    why = f"{Now.side}: {error or type(error).__name__}"
    figures.same(rows, figures.new_row(Now.group, what, ""))["failed"].append(why)
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
    print(f"    FAILED: {what}: {why}", flush=True)


def attempt(what, part, *arguments):
    """Runs a part of a suite. A part that fails becomes a failed row, and the run goes on. Returns whether it succeeded."""
    try:
        part(*arguments)
    except (Exception, SystemExit) as error:
        failed(what, error)
        return False
    return True


def has_failed():
    return any(row["failed"] for row in rows)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait(limit, what, check):
    """Returns the first answer of `check` that is true; the part of the run fails if there is none within `limit` seconds."""
    if (got := news.until(limit, check)) is None:
        raise SystemExit(f"bench: not within {limit} s: {what}")
    return got


def report(facts):
    """Prints every figure of every round, and writes target/bench/bench.json."""
    last = lambda text: f"{text:>24}" if AGAINST else ""
    print(f"\n{'what':<58}{'ours':>26}{'budget':>16}{'bare':>24}{'steal %':>9}{last('against')}")
    for r in rows:
        ours, bare, against = (figures.all_shown(r[side]) for side in ("ours", "bare", "against"))
        line = f"{r['name']:<58}{ours:>21} {r['unit']:<4}{figures.limit(r):>16}{bare:>24}{figures.worst_steal(r):>9}{last(against)}"
        print(f"{line}  {' '.join(figures.marks(r))}".rstrip())
    for r in rows:
        for why in r["failed"]:
            print(f"FAILED: {r['group']}: {r['name']}: {why}")
    with open(f"{REPO}/target/bench/bench.json", "w") as out:
        json.dump({"facts": facts, "rows": rows}, out, indent=1)
