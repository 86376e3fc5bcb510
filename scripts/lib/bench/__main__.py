"""The measurements of ./scripts/bench: starts a standalone bridge and a node of its own, measures, cleans up."""
import os
import sys

import bare
import cold
import devices
import dns
import growth
import idle
import kinds
import memory
import page
import probes
import serve_alone
import services
import site_alone
import slow_link
import start
import streams
from common import AGAINST, BIN, NAMES, REPO, ROUNDS, WORK, begin, report, row, rows, wanted
from facts import facts
from figures import turns
from meters import Steal, sync_median
from node import Node

# By name, in this order. Both builds in each round, in turns with the bare runtime.
IN_ROUNDS = {"start": start, "cold": cold, "growth": growth, "kinds": kinds}
# Both builds once.
ONCE = {"memory": memory, "idle": idle}
# Our build once.
ALONE = {"probes": probes, "streams": streams, "services": services, "dns": dns, "devices": devices}
BESIDE_A_BRIDGE = {"site": site_alone, "serve": serve_alone, "slow-link": slow_link}
KNOWN = [*IN_ROUNDS, *ONCE, *ALONE, *BESIDE_A_BRIDGE, "bare", "sizes"]
BUILDS = {"ours": BIN} | ({"against": AGAINST} if AGAINST else {})


def sizes():
    begin("ours", "sizes")
    for target, name, budget in [("aarch64-unknown-linux-gnu", "aarch64", 5.4), ("armv7-unknown-linux-gnueabihf", "armv7", 5)]:
        path = f"{REPO}/target/{target}/release/edge-runtime"
        if os.path.exists(path):
            row(f"static binary, {name}", os.path.getsize(path) / 1e6, "MB", budget)
        else:
            print(f"    static binary, {name}: not built (./scripts/cross {name})")


def on_a_node(side, suites, alone=None):
    """Measures these suites on a bridge and a node of their own."""
    if not (chosen := {name: suite for name, suite in suites.items() if wanted(name)}):
        return
    print(f"==> a bridge and a node ({side}): {', '.join(chosen)}", flush=True)
    node = Node(folder=BUILDS[side])
    try:
        node.start()
        for name, suite in chosen.items():
            begin(side, name)
            suite.measure(node, alone)
    finally:
        node.stop()


def one_round(number):
    """The host, the bare runtime and both builds, one after the other."""
    print(f"==> round {number + 1} of {ROUNDS}", flush=True)
    steal = Steal()
    begin("ours", "bare")
    row("fdatasync after 16 KiB, median of 30", sync_median(WORK) * 1e3, "ms")
    alone = bare.measure() if any(map(wanted, ("bare", "start", "cold"))) else None
    for side in turns(list(BUILDS), number):
        on_a_node(side, IN_ROUNDS, alone)
    begin("ours", "bare")
    percent = steal.percent()
    row("steal of the whole round", percent, "%", steal=percent)


def measure():
    if any(map(wanted, ("bare", *IN_ROUNDS))):
        for number in range(ROUNDS):
            one_round(number)
    for side in BUILDS:
        on_a_node(side, ONCE)
    on_a_node("ours", ALONE)
    for name, suite in BESIDE_A_BRIDGE.items():
        if wanted(name):
            print(f"==> {name}", flush=True)
            begin("ours", name)
            suite.measure()
    if wanted("sizes"):
        sizes()


def main():
    if unknown := NAMES.difference(KNOWN):
        sys.exit(f"bench: unknown: {', '.join(sorted(unknown))}; known: {', '.join(KNOWN)}")
    where = facts()
    try:
        measure()
    finally:
        # A run that fails shows what it has.
        report(where)
    page.write(REPO, where, rows, bool(os.environ.get("BENCH_WRITE")))


main()
