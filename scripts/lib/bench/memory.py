"""What a node and its bridge cost in memory: fresh, with fifty pods, after them."""
import os
import time

from common import row
from meters import pss

# A node gives memory back ten seconds after its last work, which the end of fifty pods draws out.
REST = 45
# After its start.
FRESH = 25


def measure(node, _bare):
    time.sleep(FRESH)
    row("node processes PSS, idle", pss(node.pids()), "MB", 8)
    row("bridge PSS, idle, one node", pss([node.bridge.pid]), "MB", 12)
    row("threads of the daemon", len(os.listdir(f"/proc/{node.edge.pid}/task")), "", 2)
    names = [f"kept-{i}" for i in range(50)]
    for name in names:
        node.api.pod(name)
    node.api.started(*names, limit=120)
    time.sleep(3)
    row("node processes PSS, 50 pods", pss(node.pids()), "MB", 11)
    row("helper processes for 50 pods", len(node.pids()) - 1, "", 1)
    row("bridge PSS, 50 pods", pss([node.bridge.pid]), "MB", 15)
    node.api.delete(names)
    time.sleep(REST)
    row("node processes PSS, idle after 50 pods", pss(node.pids()), "MB", 8)
    row("the same with the DNS helper", pss(node.pids() + node.helpers("dns")), "MB", 9.2)
