"""What every measurement uses: where things are, the table of figures, waiting."""
import json
import os
import socket
import sys
import time

REPO, WORK, NAMES = sys.argv[1], sys.argv[2], set(sys.argv[3:])
BIN = os.environ["SAMPAN_BIN"]
EDGE, BRIDGE = f"{BIN}/edge-runtime", f"{BIN}/cloud-bridge"
IMAGE = "docker.io/library/busybox:latest"
rows = []


def wanted(name):
    return not NAMES or name in NAMES


def row(name, value, unit, budget=None, bare=None, at_least=False):
    """A figure; `bare` is the same work without us, `at_least` makes the budget a lower bound."""
    rows.append({"name": name, "value": round(value, 4), "unit": unit, "budget": budget, "bare": bare and round(bare, 4), "at_least": at_least})
    print(f"    {name}: {value:.3f} {unit}", flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait(limit, what, check):
    end = time.monotonic() + limit
    while True:
        got = check()
        if got:
            return got
        if time.monotonic() > end:
            raise SystemExit(f"bench: not within {limit} s: {what}")
        time.sleep(0.005)


def report():
    print(f"\n{'what':<56}{'ours':>12}{'budget':>10}{'bare':>12}")
    for r in rows:
        budget = "-" if r["budget"] is None else f"{r['budget']:g}"
        bare = "-" if r["bare"] is None else f"{r['bare']:.3f}"
        kept = r["budget"] is None or (r["value"] >= r["budget"] if r["at_least"] else r["value"] <= r["budget"])
        over = "" if kept else "  OVER"
        print(f"{r['name']:<56}{r['value']:>9.3f} {r['unit']:<2}{budget:>10}{bare:>12}{over}")
    with open(f"{REPO}/target/bench/bench.json", "w") as out:
        json.dump(rows, out, indent=1)
