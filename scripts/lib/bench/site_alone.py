"""A site of its own: what the bridge costs that is the API of fifty Deployments, and how fast that API answers."""
import os
import subprocess
import time

import requests_of
from api import Api
from common import BRIDGE, REPO, WORK, free_port, row, wait
from meters import cpu, pss

SECONDS = int(os.environ.get("BENCH_IDLE_SECONDS", "60"))
# Written by `cargo build --profile fast -p sampan-scale`; ./scripts/bench does it.
SWARM = os.environ.get("SAMPAN_SWARM", f"{REPO}/target/fast/swarm")
STATE = f"{WORK}/site"
NODES, DEPLOYMENTS, REPLICAS = 10, 50, 10
PODS = DEPLOYMENTS * REPLICAS
# Simulated nodes say of every pod that it is of the class Burstable.
BURSTABLE = {"resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
# The bridge gives back what the start of hundreds of pods took within some seconds.
REST = 30


class Site:
    def __init__(self):
        self.log = open(f"{WORK}/site.log", "ab")
        self.link_port, self.api_port = free_port(), free_port()
        self.bridge = self.swarm = self.api = None

    def start(self):
        self.bridge = subprocess.Popen([
            BRIDGE, "standalone", "--state", STATE, "--listen", f"127.0.0.1:{self.link_port}",
            "--api-listen", f"127.0.0.1:{self.api_port}", "--deleted-nodes-return",
        ], stdout=self.log, stderr=self.log)
        wait(20, "the kubeconfig is there", lambda: os.path.exists(f"{STATE}/kubeconfig"))
        self.api = Api(self.api_port, f"{STATE}/kubeconfig")
        self.swarm = subprocess.Popen([
            SWARM, "--link", f"127.0.0.1:{self.link_port}", "--ca", f"{STATE}/pki/ca.crt", "--ca-key", f"{STATE}/pki/ca.key",
            "--kubeconfig", f"{STATE}/kubeconfig", "--pid", str(self.bridge.pid), "--nodes", str(NODES), "--idle", "1000000",
        ], stdout=self.log, stderr=self.log)
        wait(60, f"{NODES} simulated nodes are Ready", lambda: self.nodes_ready() == NODES)
        self.api.watch()

    def nodes_ready(self):
        nodes = self.api.call("GET", "/api/v1/nodes")["items"]
        return sum(any(c["type"] == "Ready" and c["status"] == "True" for c in n.get("status", {}).get("conditions", [])) for n in nodes)

    def stop(self):
        for process in (self.swarm, self.bridge):
            if process:
                process.kill()
                process.wait()


def measure():
    site = Site()
    try:
        site.start()
        began = min(site.api.deployment(f"app-{i}", REPLICAS, **BURSTABLE) for i in range(DEPLOYMENTS))
        wait(300, f"{PODS} pods are Ready", lambda: len(site.api.ready) >= PODS)
        row(f"{DEPLOYMENTS} Deployments, {PODS} simulated pods: all Ready", max(site.api.ready.values()) - began, "s")
        time.sleep(REST)
        what = f"bridge, {DEPLOYMENTS} Deployments, {PODS} pods, {NODES} nodes"
        row(f"{what}: PSS", pss([site.bridge.pid]), "MB", 25)
        print(f"    watching it idle for {SECONDS} s", flush=True)
        before = cpu([site.bridge.pid])
        time.sleep(SECONDS)
        row(f"{what}: idle CPU", (cpu([site.bridge.pid]) - before) / SECONDS * 100, "%", 0.1)
        fifty(site)
        requests_of.measure(site.api)
    finally:
        site.stop()


def fifty(site):
    """From the request to the fiftieth pod that is there."""
    began = site.api.deployment("fifty", 50, **BURSTABLE)
    made = lambda: [at for name, at in list(site.api.seen.items()) if name.startswith("fifty-")]
    wait(60, "fifty pods are created", lambda: len(made()) == 50)
    row("Deployment of 50: all pods created", max(made()) - began, "s", 1)
