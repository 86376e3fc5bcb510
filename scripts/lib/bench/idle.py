"""What twenty pods cost that do nothing."""
import os
import time

from common import row
from meters import cpu, link_bytes, written

SECONDS = int(os.environ.get("BENCH_IDLE_SECONDS", "60"))


def measure(node, _bare):
    names = [f"idle-{i}" for i in range(20)]
    for name in names:
        node.api.pod(name)
    node.api.started(*names, limit=300)
    time.sleep(15)
    pids = node.pids()
    before = cpu(pids), written(pids), link_bytes(node.link_port)
    print(f"    watching an idle node with 20 pods for {SECONDS} s", flush=True)
    time.sleep(SECONDS)
    after = cpu(pids), written(pids), link_bytes(node.link_port)
    hours = SECONDS / 3600
    row("idle, 20 pods: CPU of one core", (after[0] - before[0]) / SECONDS * 100, "%", 0.012)
    row("idle, 20 pods: written to disk per hour", (after[1] - before[1]) / 1e6 / hours, "MB", 0)
    row("idle, 20 pods: on the link per hour", (after[2] - before[2]) / 1e6 / hours, "MB", 0.06)
    node.api.delete(names)
