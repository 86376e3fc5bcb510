"""Pods: how fast they start, what they cost in memory, how they come back after a power cut."""
import glob
import os
import sqlite3
import statistics
import time

from common import EDGE, row, wait, wanted
from meters import pss
from node import ROOT

# A node gives memory back ten seconds after its last work, which the end of fifty pods draws out (edge-runtime/src/node/calm.rs).
REST = 45


def measure(node, bare):
    alone, fifty = bare or (None, None)
    if wanted("memory"):
        time.sleep(REST)
        row("node processes PSS, idle", pss(node.pids()), "MB", 8)
        row("bridge PSS, idle, one node", pss([node.bridge.pid]), "MB", 14)
        row("threads of the daemon", len(os.listdir(f"/proc/{node.edge.pid}/task")), "", 2)
    if wanted("start"):
        took = []
        for i in range(20):
            began = node.api.pod(f"serial-{i}")
            wait(30, "a pod is Ready", lambda: f"serial-{i}" in node.api.ready)
            took.append(node.api.ready[f"serial-{i}"] - began)
        row("create -> Ready, serial, median of 20", statistics.median(took), "s", 0.10, alone)
        row("create -> Ready, serial, worst of 20", max(took), "s")
        node.api.delete([f"serial-{i}" for i in range(20)])
    if wanted("start") or wanted("memory") or wanted("cold"):
        names = [f"many-{i}" for i in range(50)]
        began = min(node.api.pod(name) for name in names)
        wait(120, "fifty pods are Ready", lambda: all(name in node.api.ready for name in names))
        if wanted("start"):
            took = max(node.api.ready[n] for n in names) - began
            row("50 pods at once, all Ready", took, "s", 1.5, fifty)
        time.sleep(3)
        if wanted("memory"):
            row("node processes PSS, 50 pods", pss(node.pids()), "MB", 14)
            row("helper processes for 50 pods", len(node.pids()) - 1, "", 1)
            row("bridge PSS, 50 pods", pss([node.bridge.pid]), "MB")
        if wanted("cold"):
            cold_start(node, names, fifty)
        node.api.delete(names)
        if wanted("start"):
            deployment(node, took)
        if wanted("memory"):
            time.sleep(REST)
            row("node processes PSS, idle after 50 pods", pss(node.pids()), "MB", 8)


def deployment(node, pods):
    """The same fifty pods, made by a Deployment."""
    node.api.seen, node.api.ready = {}, {}
    began = node.api.deployment("fifty", 50)
    wait(120, "fifty pods of a Deployment are Ready", lambda: len(node.api.ready) == 50)
    row("Deployment of 50, one node: all pods created", max(node.api.seen.values()) - began, "s", 1)
    row("Deployment of 50, one node: all Ready", max(node.api.ready.values()) - began, "s", 1.2 * pods, pods)
    names = list(node.api.ready)
    node.api.call("DELETE", "/apis/apps/v1/namespaces/default/deployments/fifty")
    wait(60, "pods are deleted", lambda: all(name in node.api.gone for name in names))
    for name in names:
        node.api.forget(name)


def cold_start(node, names, fifty):
    """All containers die with the power, the cloud is away, the daemon starts."""
    node.stop_bridge()
    node.stop_edge()
    node.run(EDGE, "reset", "--root", ROOT)
    # What the store remembers is of an earlier boot.
    boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    with sqlite3.connect(f"{ROOT}/var/lib/edge-runtime/store.db") as store:
        store.execute("UPDATE pods SET record = replace(record, ?, 'an-earlier-boot')", (boot,))
        store.execute("UPDATE facts SET value = 'an-earlier-boot' WHERE key = 'boot-id'")
    store.close()
    began = time.monotonic()
    node.start_edge()

    def running():
        # What the OCI runtime has started has a pid file in its bundle; asking runc would take the cores it needs.
        return len(glob.glob(f"{ROOT}/run/edge-runtime/containers/*/pid")) >= len(names)

    wait(120, "fifty containers run again", running)
    row("cold start without cloud, 50 pods running", time.monotonic() - began, "s", 1.5, fifty)
    node.return_bridge()
