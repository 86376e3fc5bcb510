"""How long pods wait for the link while four `kubectl logs -f` fill it. In namespaces of its own: the bridge in one,
the node in another, 1 Mbit/s between them.
"""
import json
import os
import statistics
import subprocess
import sys
import time

import interrupts
from common import REPO, WORK, begin, row, rows

RATE = "1mbit"
PODS = int(os.environ.get("BENCH_SLOW_PODS", "40"))
# Per stream half of what the link takes, so four are twice too much.
TALK = "while :; do head -c 12500 /dev/urandom | base64; sleep 0.2; done"
BRIDGE_ADDRESS, NODE_ADDRESS = "10.199.0.1", "10.199.0.2"


def measure():
    folder = f"{WORK}/slow"
    os.makedirs(folder)
    inside = ["unshare", "--net", sys.executable, f"{REPO}/scripts/lib/bench/slow_link.py", REPO, folder, *sys.argv[3:]]
    child = subprocess.Popen(inside)
    try:
        code = child.wait()
    finally:
        # It cleans up before it ends.
        if child.poll() is None:
            child.terminate()
            child.wait()
    with open(f"{folder}/rows") as found:
        rows.extend(json.load(found))
    if code:
        raise SystemExit("bench: the node on the slow link failed, see above")


def command(line):
    subprocess.run(line.split(), check=True)


def shaped(pid):
    """Joins this namespace and that of `pid`, as slow in both directions."""
    command("ip link set lo up")
    command(f"ip link add wire type veth peer name wire netns {pid}")
    for inside, address in [("", BRIDGE_ADDRESS), (f"nsenter --net=/proc/{pid}/ns/net ", NODE_ADDRESS)]:
        command(f"{inside}ip link set lo up")
        command(f"{inside}ip address add {address}/24 dev wire")
        command(f"{inside}ip link set wire up")
        command(f"{inside}tc qdisc add dev wire root tbf rate {RATE} burst 5kb latency 200ms")


def sent(pid):
    with open(f"/proc/{pid}/net/dev") as table:
        line = next(line for line in table if line.strip().startswith("wire:"))
    return int(line.split(":")[1].split()[8])


def inside():
    # Only here: it takes free ports and folders as the namespace has them.
    from node import Node

    begin("ours", "slow-link")
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    node = Node(BRIDGE_ADDRESS, ["nsenter", f"--net=/proc/{holder.pid}/ns/net"])
    followers = []
    try:
        while os.readlink(f"/proc/{holder.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        shaped(holder.pid)
        node.start()
        talkers = [f"talk-{i}" for i in range(4)]
        for name in talkers:
            node.api.pod(name, ["/bin/sh", "-c", TALK])
        node.api.started(*talkers)
        for name in talkers:
            followers.append(subprocess.Popen(node.kubectl("logs", "-f", name), stdout=subprocess.DEVNULL))
        time.sleep(10)
        before, began, took = sent(holder.pid), time.monotonic(), []
        for i in range(PODS):
            asked = node.api.pod(f"sync-{i}")
            node.api.started(f"sync-{i}")
            took.append(node.api.ready[f"sync-{i}"] - asked)
            # The end of the pod is not waited for: it goes over the same link meanwhile.
            node.api.call("DELETE", f"/api/v1/namespaces/default/pods/sync-{i}")
        full = (sent(holder.pid) - before) * 8 / 1e6 / (time.monotonic() - began)
        took.sort()
        row("1 Mbit/s link filled by 4 logs -f: in use", full, "Mbit/s")
        row("1 Mbit/s link filled: create -> Ready, p50", statistics.median(took), "s", 1)
        row("1 Mbit/s link filled: create -> Ready, p99", took[max(0, round(len(took) * 0.99) - 1)], "s", 1)
    finally:
        for follower in followers:
            follower.kill()
            follower.wait()
        node.stop()
        holder.kill()
        holder.wait()
        with open(f"{WORK}/rows", "w") as out:
            json.dump(rows, out)


if __name__ == "__main__":
    interrupts.catch()
    inside()
