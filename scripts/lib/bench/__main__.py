"""The measurements of ./scripts/bench: starts a standalone bridge and a node of its own, measures, cleans up."""
import os
import subprocess
import sys

import bare
import devices
import dns
import idle
import pods
import probes
import serve_alone
import services
import site_alone
import slow_link
import streams
from common import NAMES, REPO, report, row, wanted
from node import Node

# By name, in this order.
ON_A_NODE = {"start": pods, "memory": pods, "cold": pods, "idle": idle, "probes": probes, "streams": streams, "services": services, "dns": dns, "devices": devices}
ELSEWHERE = {"runc", "sizes", "slow-link", "site", "serve"}


def sizes():
    for target, name in [("aarch64-unknown-linux-gnu", "aarch64"), ("armv7-unknown-linux-gnueabihf", "armv7")]:
        path = f"{REPO}/target/{target}/release/edge-runtime"
        if os.path.exists(path):
            row(f"static binary, {name}", os.path.getsize(path) / 1e6, "MB", 5)
        else:
            print(f"    static binary, {name}: not built (./scripts/cross {name})")


def main():
    if unknown := NAMES - ON_A_NODE.keys() - ELSEWHERE:
        sys.exit(f"bench: unknown: {', '.join(sorted(unknown))}; known: {', '.join(sorted(ON_A_NODE.keys() | ELSEWHERE))}")
    alone = None
    if wanted("runc") or wanted("start") or wanted("cold"):
        print("==> bare runc, for comparison", flush=True)
        alone = bare.runc()
        row("runc run -d, alone, median of 10", alone[0], "s")
        row("runc run -d, 50, as many at once as cores", alone[1], "s")
    if any(wanted(name) for name in ON_A_NODE):
        print("==> a bridge and a node", flush=True)
        node = Node()
        try:
            node.start()
            for module in dict.fromkeys(module for name, module in ON_A_NODE.items() if wanted(name)):
                module.measure(node, alone)
        finally:
            node.stop()
    if wanted("site"):
        print("==> a bridge that is a site of its own, with simulated nodes", flush=True)
        site_alone.measure()
    if wanted("serve"):
        print("==> a bridge beside a cluster", flush=True)
        serve_alone.measure()
    if wanted("slow-link"):
        print("==> a bridge and a node, 1 Mbit/s between them", flush=True)
        slow_link.measure()
    if wanted("sizes"):
        sizes()
    report()


main()
