"""The measurements of ./scripts/bench: starts a standalone bridge and a node of its own, measures, cleans up."""
import os
import sys

import bare
import cold
import devices
import dns
import enrol_alone
import growth
import idle
import interrupts
import kinds
import local_api
import memory
import page
import page_alone
import plugins
import probes
import serve_alone
import services
import site_alone
import slow_link
import start
import streams
from common import AGAINST, BIN, NAMES, REPO, ROUNDS, WORK, attempt, begin, failed, has_failed, report, row, rows, wanted
from facts import facts
from figures import turns
from meters import Steal, sync_median
from node import Node

# By name, in this order. Both builds, in turns with the bare runtime.
IN_ROUNDS = {"start": start, "cold": cold, "growth": growth, "kinds": kinds}
EVERY_ROUND = {"start", "cold"}
# Both builds once.
ONCE = {"memory": memory, "idle": idle}
# Our build once.
ALONE = {"probes": probes, "streams": streams, "services": services, "dns": dns, "devices": devices, "local-api": local_api, "plugins": plugins}
BESIDE_A_BRIDGE = {"site": site_alone, "page": page_alone, "serve": serve_alone, "enrol": enrol_alone, "slow-link": slow_link}
KNOWN = [*IN_ROUNDS, *ONCE, *ALONE, *BESIDE_A_BRIDGE, "bare", "sizes"]
BUILDS = {"ours": BIN} | ({"against": AGAINST} if AGAINST else {})


def sizes():
    begin("ours", "sizes")
    for target, name, budget in [("aarch64-unknown-linux-gnu", "aarch64", 5.4), ("armv7-unknown-linux-gnueabihf", "armv7", 5.4)]:
        path = f"{REPO}/target/{target}/release/edge-runtime"
        if os.path.exists(path):
            row(f"static binary, {name}", os.path.getsize(path) / 1e6, "MB", budget)
        else:
            print(f"    static binary, {name}: not built (./scripts/cross {name})")


def of_round(number):
    """The suites of this round. Growth and kinds compare a build with itself, and take longest: a run of all suites
    measures them once."""
    return {name: suite for name, suite in IN_ROUNDS.items() if wanted(name) and (name in EVERY_ROUND or not number or NAMES)}


def on_a_node(side, suites, alone=None):
    """Measures these suites on a bridge and a node of their own. After a suite that failed the next one gets new ones."""
    left = [name for name in suites if wanted(name)]
    while left:
        print(f"==> a bridge and a node ({side}): {', '.join(left)}", flush=True)
        try:
            measured_on(side, suites, left, alone)
        except (Exception, SystemExit) as error:
            failed(f"{left[0]}: rest of the suite" if left else "end of the node", error)
            # The one that failed, also where the node did not start.
            left = left[1:]


def measured_on(side, suites, left, alone):
    """Removes from `left` what is measured."""
    begin(side, left[0])
    node = Node(folder=BUILDS[side])
    try:
        node.start()
        while left:
            begin(side, left[0])
            suites[left[0]].measure(node, alone)
            left.pop(0)
    finally:
        node.stop()


def one_round(number):
    """The host, the bare runtime and both builds, one after the other."""
    print(f"==> round {number + 1} of {ROUNDS}", flush=True)
    steal = Steal()
    begin("ours", "bare")
    attempt("fdatasync", lambda: row("fdatasync after 16 KiB, median of 30", sync_median(WORK) * 1e3, "ms"))
    alone = bare.Bare()
    if any(map(wanted, ("bare", "start", "cold"))):
        attempt("the OCI runtime alone", bare.measure, alone)
    for side in turns(list(BUILDS), number):
        on_a_node(side, of_round(number), alone)
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
            attempt(f"{name}: rest of the suite", suite.measure)
    if wanted("sizes"):
        sizes()


def main():
    interrupts.catch()
    if unknown := NAMES.difference(KNOWN):
        sys.exit(f"bench: unknown: {', '.join(sorted(unknown))}; known: {', '.join(KNOWN)}")
    where = facts()
    try:
        measure()
    finally:
        # A run that is interrupted shows what it has.
        report(where)
    page.write(REPO, where, rows, bool(os.environ.get("BENCH_WRITE")))
    if has_failed():
        sys.exit("bench: rows failed, see above")


main()
