"""What the helper for device plugins costs while there is no plugin."""
import time

from common import WORK, row, wait
from meters import pss

# Memory is given back ten seconds after the last work.
REST = 15


def measure(node, _bare):
    node.restart_edge(f"plugins: {{device-plugins: true, root: {WORK}/kubelet}}\n")
    try:
        wait(60, "the node is Ready again", node.is_ready)
        time.sleep(REST)
        pid = wait(10, "the helper runs", lambda: node.program("edge-plugins"))
        row("edge-plugins, idle: PSS", pss([pid]), "MB", 1.2)
    finally:
        node.restart_edge()
