"""The life of the machine: a node on its own bridge, its first boot, and its boots after a cut; what must hold of it after each."""

import argparse
import signal
import subprocess
import sys

from board import Api, Died, until

NAMESPACE = "/api/v1/namespaces/default"
# How often a machine may hang in one boot before that counts.
HANGS = 2


def arguments(description):
    """What scripts/power-cut tells; whoever ends this process ends the machine, too."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("work", "disk", "qemu", "kernel", "initramfs"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--libraries", default="")
    parser.add_argument("--data", default="")
    parser.add_argument("--images", default="")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cuts", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return parser.parse_args()


def say(text):
    print(f"    {text}", flush=True)


def ready(api):
    try:
        return api.ask("GET", NAMESPACE, seconds=5)[0] == 200
    except OSError:
        return False


def node_ready(api):
    try:
        code, node = api.ask("GET", "/api/v1/nodes/board", seconds=20)
    except OSError:
        return False
    conditions = node.get("status", {}).get("conditions", []) if code == 200 else []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def settled(api):
    """Every pod has got as far as it gets."""
    code, pods = api.get(f"{NAMESPACE}/pods")
    good = {"Running", "Succeeded", "Failed"}
    return code == 200 and all(
        p["status"].get("phase") in good and not p["metadata"].get("deletionTimestamp") for p in pods["items"]
    )


def first_boot(board, options, config=None):
    """A bridge, a node that belongs to it, and the images. `config`: one more line of the node's configuration."""
    board.power_on(0)

    def kubeconfig():
        code, text = board.run("cat /var/lib/cloud-bridge/kubeconfig")
        return code == 0 and text

    kubeconfig = until(120, "the kubeconfig", kubeconfig)
    api = Api(kubeconfig, options.port, options.work)
    until(60, "the API", lambda: ready(api))
    token = board.must("cloud-bridge token create board --state /var/lib/cloud-bridge").split()[0]
    board.must(f"edge-runtime join --bridge https://10.0.2.15:7443 --token {token} --node board")
    if config:
        # Where the daemon, which may run already, finds it at its next start.
        board.must(f"mkdir -p /etc/edge-runtime && echo '{config}' >>/etc/edge-runtime/config.yaml")
    board.must("edge-runtime import /root/busybox.tar && mkdir -p /var/jobs")
    until(120, "the node", lambda: node_ready(api))
    board.must("sync")
    return api


def file_system(board, number, options):
    """After every other cut the file system is looked at from outside, as a boot with fsck does; else the kernel replays
    its journal."""
    if number % 2:
        return []
    done = subprocess.run(["e2fsck", "-f", "-p", options.disk], capture_output=True, text=True)
    return [] if done.returncode <= 1 else [f"e2fsck: {done.returncode}: {done.stdout[-1000:]}"]


def boot(board, api, seed):
    """The power comes back, and bridge and node with it. A machine that hangs by itself is cut once more; returns how often
    that was so."""
    for hung in range(HANGS + 1):
        api.forget()
        try:
            board.power_on(seed)
            until(120, "the API", lambda: ready(api))
            until(120, "the node", lambda: node_ready(api))
            return hung
        except Died:
            if hung == HANGS or not board.stuck():
                raise
            say("the machine's own kernel hangs: its power is cut again")
            board.power_off()


def last_words(board):
    """What the machine said before something was wrong."""
    if not board.qemu:
        return
    say(f"the last of the serial log: {subprocess.run(['tail', '-n', '20', board.serial], capture_output=True, text=True).stdout}")
    try:
        say(board.run("tail -n 30 /var/log/*.log; ps", 20)[1])
    except Died as silent:
        say(str(silent))
