"""What probes cost the node's processes: three network probes a second, and an exec probe a second.

The cost is the difference to the same pods without probes. It is smaller than what the host's noise makes of either, so
that both are watched in turns, and the median of the differences of neighbours counts."""
import glob
import os
import socket
import statistics
import subprocess
import sys
import time

from common import REPO, row, wait
from meters import children, cpu
from node import ROOT
from probed import GRPC, HTTP, TCP

SECONDS = int(os.environ.get("BENCH_PROBE_SECONDS", "20"))
ROUNDS = 2
# Whole tens of seconds: what a node does every ten falls into each as often.
WINDOW = max(10, round(SECONDS / ROUNDS, -1))
# What a pod's start is followed by: reports, and the first probes.
SETTLE = 10
# A container has two probes that go on, so three take two containers.
PROBED = {
    "asked": {
        "readinessProbe": {"httpGet": {"port": HTTP}, "periodSeconds": 1},
        "livenessProbe": {"tcpSocket": {"port": TCP}, "periodSeconds": 1, "failureThreshold": 60},
    },
    "called": {"readinessProbe": {"grpc": {"port": GRPC}, "periodSeconds": 1}},
}
COMMANDED = {"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}}


def pid_of(name):
    """Of the first process of the container that has this word on its command line."""
    for file in glob.glob(f"{ROOT}/run/edge-runtime/containers/*/pid"):
        with open(file) as text:
            pid = text.read().strip()
        try:
            with open(f"/proc/{pid}/cmdline") as words:
                if name in words.read().split("\0"):
                    return pid
        except OSError:
            pass
    return None


def pod(node, name, **probes):
    node.api.pod(name, ["/bin/sh", "-c", "sleep 1000000; :", name], **probes)


def spent(node, seconds, meter=cpu):
    pids = node.pids()
    before, began = meter(pids), time.monotonic()
    time.sleep(seconds)
    return (meter(pids) - before) / (time.monotonic() - began) * 100


def bare(address, seconds):
    """The same connections by nothing but system calls, in percent of a core."""
    asked = {HTTP: b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", TCP: None, GRPC: bytes(200)}
    began, busy = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for port, text in asked.items():
            time.sleep(1 / 3)
            before = time.thread_time_ns()
            with socket.create_connection((address, port)) as s:
                if text:
                    s.send(text)
                    s.recv(4096)
            busy += time.thread_time_ns() - before
    return busy / 1e9 / (time.monotonic() - began) * 100


def watched(node, turn, probed):
    """Percent of a core that the node takes beside the two pods, with their probes or without; and the cost of bare ones."""
    servers, floor = [], None
    # Names of their own: what an object's name was is gone from the API before its processes are.
    names = {f"{name}-{turn}": probes for name, probes in PROBED.items()}
    try:
        for name, probes in names.items():
            pod(node, name, **(probes if probed else {}))
            pid = wait(20, f"{name} runs", lambda: pid_of(name))
            serve = [sys.executable, f"{REPO}/scripts/lib/bench/probed.py"]
            servers.append(subprocess.Popen(["nsenter", f"--net=/proc/{pid}/ns/net", *serve]))
        node.api.started(*names)
        time.sleep(SETTLE)
        took = spent(node, WINDOW)
        if turn == 0:
            address = node.api.call("GET", f"/api/v1/namespaces/default/pods/asked-{turn}")["status"]["podIP"]
            floor = bare(address, WINDOW)
    finally:
        for server in servers:
            server.kill()
            server.wait()
        node.api.delete(names)
    return took, floor


def measure(node, _bare):
    quiet, probed, floors = [], [], []
    for turn in range(ROUNDS):
        took, floor = watched(node, 2 * turn, False)
        quiet.append(took)
        floors += [floor] if floor is not None else []
        probed.append(watched(node, 2 * turn + 1, True)[0])
    # Each with the one before it, and with the one after it.
    costs = [p - q for p, q in zip(probed, quiet)] + [p - q for p, q in zip(probed, quiet[1:])]
    print("    without probes " + ", ".join(f"{q:.3f}" for q in quiet) + " %; with " + ", ".join(f"{p:.3f}" for p in probed))
    row("3 network probes a second: CPU of one core", statistics.median(costs), "%", 0.05, statistics.median(floors))
    pod(node, "silent")
    node.api.started("silent")
    time.sleep(SETTLE)
    base = spent(node, WINDOW)
    node.api.delete(["silent"])
    pod(node, "commanded", **COMMANDED)
    node.api.started("commanded")
    time.sleep(SETTLE)
    own, runc = spent(node, WINDOW), spent(node, WINDOW, children)
    row("1 exec probe a second: CPU of one core, ours", own - base, "%")
    row("1 exec probe a second: CPU of one core, runc", runc, "%")
    node.api.delete(["commanded"])
