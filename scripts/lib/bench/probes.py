"""What probes cost the node's processes: three network probes a second, and an exec probe a second."""
import glob
import os
import socket
import subprocess
import sys
import time

from common import REPO, row, wait
from meters import children, cpu
from node import ROOT
from probed import GRPC, HTTP, TCP

SECONDS = int(os.environ.get("BENCH_PROBE_SECONDS", "60"))
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


def measure(node, _bare):
    quiet = spent(node, SECONDS / 2)
    servers = []
    try:
        for name, probes in PROBED.items():
            pod(node, name, **probes)
            pid = wait(20, f"{name} runs", lambda: pid_of(name))
            serve = [sys.executable, f"{REPO}/scripts/lib/bench/probed.py"]
            servers.append(subprocess.Popen(["nsenter", f"--net=/proc/{pid}/ns/net", *serve]))
        node.api.started(*PROBED)
        time.sleep(5)
        probed = spent(node, SECONDS)
        address = node.api.call("GET", "/api/v1/namespaces/default/pods/asked")["status"]["podIP"]
        floor = bare(address, SECONDS / 2)
        row("3 network probes a second: CPU of one core", probed - quiet, "%", 0.05, floor)
    finally:
        for server in servers:
            server.kill()
            server.wait()
    node.api.delete(PROBED)
    pod(node, "commanded", **COMMANDED)
    node.api.started("commanded")
    time.sleep(5)
    own, runc = spent(node, SECONDS / 2), spent(node, SECONDS / 2, children)
    row("1 exec probe a second: CPU of one core, ours", own - quiet, "%")
    row("1 exec probe a second: CPU of one core, runc", runc, "%")
    node.api.delete(["commanded"])
