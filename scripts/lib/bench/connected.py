"""A pod with a server of ours in its network."""
import subprocess
import sys

from api import pod_spec
from common import REPO, wait
from probes import pid_of
from served import READY

HERE = f"{REPO}/scripts/lib/bench"


class Pod:
    def __init__(self, node, name, app):
        self.name, self.node = name, node
        spec = {"nodeName": "edge-1"} | pod_spec(["/bin/sh", "-c", "sleep 1000000; :", name])
        probe = {"httpGet": {"port": READY, "path": "/"}, "periodSeconds": 1, "failureThreshold": 1}
        spec["containers"][0]["readinessProbe"] = probe
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}}, "spec": spec}
        node.api.call("POST", "/api/v1/namespaces/default/pods", body)
        self.pid = wait(30, f"{name} runs", lambda: pid_of(name))
        self.server = self.run("served.py", name)
        assert self.server.stdout.readline().strip() == "serving"
        node.api.started(name)
        self.ip = node.api.call("GET", f"/api/v1/namespaces/default/pods/{name}")["status"]["podIP"]

    def command(self, *words):
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *words]

    def run(self, script, *words):
        """A script of this folder in the pod's network."""
        program = self.command(sys.executable, f"{HERE}/{script}", *words)
        return subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def become(self, state):
        """Ready (`up`) or not (`down`); when it first said so."""
        self.server.stdin.write(state + "\n")
        self.server.stdin.flush()
        return float(self.server.stdout.readline())

    def end(self):
        self.server.kill()
        self.server.wait()
