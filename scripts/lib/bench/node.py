"""A standalone bridge and a node of its own, started and cleaned up."""
import glob
import os
import re
import socket
import subprocess
import tempfile

from api import Api
from common import BIN, REPO, RUNTIME, WORK, free_port, wait
from meters import children, cpu

ROOT, STATE = f"{WORK}/n", f"{WORK}/b"


def commands():
    """Processes of this host, and the words of their command lines."""
    for entry in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(entry) as file:
                yield int(entry.split("/")[2]), file.read().split("\0")
        except OSError:
            continue


class Node:
    """`host` is where the bridge listens for the node; `around` goes before the node's own commands; `folder` holds the
    programs. There is one node at a time."""

    def __init__(self, host="127.0.0.1", around=(), folder=BIN):
        self.log = open(f"{WORK}/log", "ab")
        self.bridge = self.edge = None
        self.host, self.around = host, list(around)
        self.program, self.bridge_program = f"{folder}/edge-runtime", f"{folder}/cloud-bridge"
        self.link_port, self.api_port = free_port(), free_port()

    def start(self):
        self.start_bridge()
        wait(20, "the kubeconfig is there", lambda: os.path.exists(f"{STATE}/kubeconfig") and self.listens())
        self.api = Api(self.api_port, f"{STATE}/kubeconfig")
        # As on a device, /run is not on a disk.
        os.makedirs(f"{ROOT}/run", exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", f"{ROOT}/run"], check=True)
        token = re.search(r"sampan1\.\S+", self.run(self.bridge_program, "token", "create", "edge-1", "--state", STATE)).group()
        self.run(*self.around, self.program, "join", "--root", ROOT, "--bridge", f"https://{self.host}:{self.link_port}", "--token", token, "--node", "edge-1")
        subprocess.run([f"{REPO}/scripts/lib/make-busybox-image.sh", f"{WORK}/bb.tar"], check=True, stdout=self.log)
        self.run(self.program, "import", "--root", ROOT, f"{WORK}/bb.tar")
        self.configure()
        self.start_edge()
        wait(30, "the node is Ready", self.is_ready)
        self.api.watch()

    def listens(self):
        with socket.socket() as s:
            return not s.connect_ex(("127.0.0.1", self.api_port))

    def start_bridge(self):
        self.bridge = subprocess.Popen([self.bridge_program, "standalone", "--state", STATE, "--listen", f"{self.host}:{self.link_port}", "--api-listen", f"127.0.0.1:{self.api_port}"], stdout=self.log, stderr=self.log)

    def run(self, *command):
        return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True).stdout

    def configure(self, more=""):
        # What is measured is the node, not whether the host's disk is full.
        signals = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree")
        os.makedirs(f"{ROOT}/etc/edge-runtime", exist_ok=True)
        with open(f"{ROOT}/etc/edge-runtime/config.yaml", "w") as config:
            off = ", ".join(f"{signal}: '0'" for signal in signals)
            config.write(f"eviction: {{hard: {{{off}}}}}\n")
            config.write(f"runtime: {{command: {RUNTIME}}}\n{more}")

    def stop_edge(self):
        self.edge.kill()
        self.edge.wait()

    def restart_edge(self, more=""):
        """The daemon again, with more in its configuration."""
        self.stop_edge()
        self.configure(more)
        self.start_edge()
        wait(60, "the daemon answers", self.answers)

    def answers(self):
        command = [*self.around, self.program, "ps", "--root", ROOT]
        return not subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode

    def stop_bridge(self):
        self.bridge.kill()
        self.bridge.wait()

    def return_bridge(self):
        self.start_bridge()
        wait(20, "the API is back", self.listens)
        self.api = Api(self.api_port, f"{STATE}/kubeconfig")
        wait(90, "the node is Ready again", self.is_ready)
        self.api.watch()

    def start_edge(self):
        self.edge = subprocess.Popen([*self.around, self.program, "run", "--root", ROOT], stdout=self.log, stderr=self.log)

    def kubectl(self, *words):
        return ["kubectl", "--kubeconfig", f"{STATE}/kubeconfig", *words]

    def is_ready(self):
        try:
            conditions = self.api.call("GET", "/api/v1/nodes/edge-1")["status"].get("conditions", [])
        except RuntimeError:
            return False
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def stop(self):
        for process in (self.edge, self.bridge):
            if process:
                process.kill()
                process.wait()
        try:
            if os.path.exists(f"{ROOT}/run"):
                subprocess.run([*self.around, self.program, "reset", "--all", "--root", ROOT], check=True, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        finally:
            subprocess.run(["umount", "--lazy", f"{ROOT}/run"], stderr=self.log)
            # The next node begins with nothing. Not deleted here: what is still mounted below would go with it.
            for folder in (ROOT, STATE):
                if os.path.exists(folder):
                    os.rename(folder, tempfile.mkdtemp(prefix="left-", dir=WORK))

    def pids(self):
        """The node's processes: the daemon and the monitor."""
        return [self.edge.pid, *self.helpers("monitor")]

    def parts(self):
        """CPU seconds so far, by part and process. Programs that daemon and bridge ran count with them; the monitor's
        are runc and the containers, which cost the same without it."""
        own = lambda pids: {pid: cpu([pid]) for pid in pids}
        with_children = lambda pid: {pid: cpu([pid]), f"children of {pid}": children([pid])}
        daemon = with_children(self.edge.pid) | own(self.helpers("dns"))
        return {"daemon": daemon, "monitor": own(self.helpers("monitor")), "bridge": with_children(self.bridge.pid)}

    def helpers(self, verb):
        """Processes of ours with this verb, of this node."""
        return [pid for pid, words in commands() if len(words) > 1 and words[1] == verb and ROOT in words]

    def program(self, name):
        """The process of this node that runs this program; None if there is none."""
        is_it = lambda words: words[0].endswith(name) and any(word.startswith(ROOT) for word in words)
        return next((pid for pid, words in commands() if is_it(words)), None)
