"""How soon fifty pods run again after a power cut, without a cloud."""
import sqlite3
import time

from arrivals import Arrivals
from common import row
from meters import Steal
from node import ROOT

TIMES = 1.15


def measure(node, bare):
    """All containers die with the power, the cloud is away, the daemon starts."""
    names = [f"cold-{i}" for i in range(50)]
    for name in names:
        node.api.pod(name)
    node.api.started(*names, limit=120)
    time.sleep(3)
    node.stop_bridge()
    node.stop_edge()
    node.run(node.program, "reset", "--root", ROOT)
    # What the store remembers is of an earlier boot.
    boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    with sqlite3.connect(f"{ROOT}/var/lib/edge-runtime/store.db") as store:
        store.execute("UPDATE pods SET record = replace(record, ?, 'an-earlier-boot')", (boot,))
        store.execute("UPDATE facts SET value = 'an-earlier-boot' WHERE key = 'boot-id'")
    store.close()
    # A container that the OCI runtime has started has a pid file in its bundle.
    started = Arrivals(f"{ROOT}/run", "edge-runtime", "containers", "*", "pid")
    if started.files:
        raise SystemExit("bench: containers are left after the reset")
    steal, began = Steal(), time.monotonic()
    node.start_edge()
    if not started.until(len(names), 120):
        raise SystemExit(f"bench: {len(started.files)} of {len(names)} containers run again within 120 s")
    took, stolen = time.monotonic() - began, steal.percent()
    started.close()
    row("cold start without cloud, 50 pods running", took, "s", times=TIMES, bare=bare.fifty, steal=stolen)
    node.return_bridge()
    node.api.delete(names)
