"""Services: what they cost in memory, how soon rules follow, what a way through them costs a connection."""
import json
import re
import socket
import statistics
import subprocess
import time

import kube_proxy
from beside import percentile
from common import attempt, row, wait
from connected import Pod
from meters import pss
from ruleset import Watch
from served import PORT, SINK

# Memory is given back ten seconds after the last work.
REST = 15
OFF = "services: {enabled: false, dns: false}\n"
MANY, ENDPOINTS, CHANGES, CUTS = 1000, 10, 20, 10
ONE, TWO = {80: PORT}, {80: PORT, 81: SINK}
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
SERVICES = "/api/v1/namespaces/default/services"


def service(node, name, ports, **spec):
    """Creates one whose ports lead to these; its address."""
    numbered = [{"name": f"p{port}", "port": port, "targetPort": target} for port, target in ports.items()]
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": numbered} | spec}
    return node.api.call("POST", SERVICES, body)["spec"].get("clusterIP")


def slice_of(name, addresses, ports=ONE):
    return {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "ports": [{"name": f"p{port}", "port": target, "protocol": "TCP"} for port, target in ports.items()],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
    }


def addresses(number):
    """Of nobody: RFC 2544's, for benchmarks."""
    return [f"198.18.{number // 25}.{number % 25 * 10 + k}" for k in range(ENDPOINTS)]


class Table:
    """The node's own table: the host may have those of others."""

    def __init__(self, pod):
        route = subprocess.run(["ip", "route", "get", pod.ip], stdout=subprocess.PIPE, text=True).stdout
        self.name = "services-" + re.search(r"dev (\S+)", route)[1]

    def text(self):
        command = ["nft", "list", "table", "ip", self.name]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def chains(self):
        return self.text().count("numgen")


def memory(node, table):
    """Twenty Services with two ports, half of them of pods, half of given endpoints."""
    for i in range(20):
        if i % 2:
            service(node, f"few-{i}", TWO)
            node.api.call("POST", SLICES, slice_of(f"few-{i}", addresses(i)[:2], TWO))
        else:
            service(node, f"few-{i}", TWO, selector={"app": "web"})
    wait(60, "twenty Services are in force", lambda: table.chains() >= 40)
    took = {True: [], False: []}
    for turn in range(4):
        on = turn % 2 == 0
        node.restart_edge("" if on else OFF)
        time.sleep(REST)
        took[on].append(pss(node.pids() + node.helpers("dns")))
        if not on and (table.text() or node.helpers("dns")):
            raise SystemExit("bench: Services are off, and there is a table or a helper")
    print("    on " + ", ".join(f"{t:.2f}" for t in took[True]) + " MB; off " + ", ".join(f"{t:.2f}" for t in took[False]))
    row("Services and DNS, 20 Services: PSS more than off", statistics.mean(took[True]) - statistics.mean(took[False]), "MB", 1.2)
    node.restart_edge()


def many(node, table):
    began = time.monotonic()
    for i in range(MANY):
        service(node, f"many-{i}", ONE)
        node.api.call("POST", SLICES, slice_of(f"many-{i}", addresses(i)))
    print(f"    {MANY} Services made in {time.monotonic() - began:.1f} s", flush=True)
    wait(120, "all are in force", lambda: table.chains() >= MANY)
    node.stop_edge()
    subprocess.run(["nft", "delete", "table", "ip", table.name], check=True)
    watch = Watch(table.name)
    began = time.monotonic()
    node.start_edge()
    took = in_force(watch, began)
    wait(60, "all are in force again", lambda: table.chains() >= MANY)
    wait(60, "the daemon answers", node.answers)
    peer = kube_proxy.start(node, in_force)
    try:
        row(f"{MANY} Services x {ENDPOINTS}: daemon's start to rules in force", took, "s", 2, peer and peer.took)
        changes(node, watch, peer)
    finally:
        if peer:
            peer.stop()
    return watch


def in_force(watch, began):
    """How long it took until the first, the middle and the last of many were named."""
    moments = [watch.after(began, socket.inet_aton(addresses(i)[0]), 60) for i in (0, MANY // 2, MANY - 1)]
    if None in moments:
        raise SystemExit("bench: rules are not made within 60 s")
    return max(moments) - began


def changes(node, watch, peer):
    """One endpoint has another address from now on."""
    time.sleep(5)
    ours, theirs = [], []
    for change in range(CHANGES):
        number, new = change * 17 % MANY, f"198.19.0.{change + 1}"
        body = slice_of(f"many-{number}", [new] + addresses(number)[1:])
        began = time.monotonic()
        node.api.call("PUT", f"{SLICES}/many-{number}", body)
        for of, taken in ([watch, ours], [peer and peer.watch, theirs]):
            if of:
                when = of.after(began, socket.inet_aton(new))
                taken.append(when - began if when else 5)
        time.sleep(1.1)
    row("one endpoint changed in the API to rule in force, p50", percentile(ours, 50), "s", None, theirs and percentile(theirs, 50))
    row("one endpoint changed in the API to rule in force, p99", percentile(ours, 99), "s", None, theirs and percentile(theirs, 99))


def truth(node, watch, pod):
    """A pod's readiness goes and comes: from its answer to the rule."""
    took = []
    for change in range(CHANGES):
        answered = pod.become("up" if change % 2 else "down")
        when = watch.after(answered)
        took.append(when - answered if when else 5)
        time.sleep(0.3)
    row(f"readiness changed to rule in force, {MANY} Services, p50", percentile(took, 50), "s")
    row(f"readiness changed to rule in force, {MANY} Services, p99", percentile(took, 99), "s", 0.1)


def cut(node, client, pod, ip):
    """The cloud is away: how long after the answer that says so does a connection that begins still come to the pod."""
    node.stop_bridge()
    # A probe a second says each of the two changes; then come the pauses.
    seconds = CUTS * 4 + 5
    asking = client.run("connects.py", "watch", ip, str(seconds))
    moments = []
    for _ in range(CUTS):
        moments.append(pod.become("down"))
        time.sleep(1)
        pod.become("up")
        time.sleep(0.5)
    seen = json.loads(asking.communicate(timeout=seconds + 30)[0])
    began = seen.get(pod.name, [])
    failed = {who: len(times) for who, times in seen.items() if who.startswith("failed")}
    print(f"    {sum(map(len, seen.values()))} connections, failed: {failed or 'none'}", flush=True)
    took = [max((at - moment for at in began if moment < at < moment + 1), default=0) for moment in moments]
    print(f"    in the order of the cuts, ms: {' '.join(f'{moment * 1e3:.0f}' for moment in took)}", flush=True)
    row("cloud cut: readiness lost to last new connection, p50", percentile(took, 50), "s")
    row("cloud cut: readiness lost to last new connection, p99", percentile(took, 99), "s", 0.1)


def through(client, ip, pod):
    """A connection through the Service beside one straight to the pod."""
    text = client.run("connects.py", "compare", ip, pod.ip).communicate(timeout=300)[0]
    found = json.loads(text)
    (by, straight), (flow, straight_flow) = found["seconds"], found["bytes"]
    row("connection and request through a ClusterIP, p50", by * 1e6, "us", 1.05 * straight * 1e6, straight * 1e6)
    row("one stream through a ClusterIP", flow / 1e9, "GB/s", 0.95 * straight_flow / 1e9, straight_flow / 1e9, at_least=True)


def measure(node, _bare):
    pods = []
    try:
        for name, app in [("client", "client"), ("web-0", "web"), ("web-1", "web"), ("lone", "lone")]:
            pods.append(Pod(node, name, app))
        client, zero, _, lone = pods
        table = Table(client)
        attempt("memory of Services and DNS", memory, node, table)
        ip = service(node, "own", ONE, selector={"app": "web"})
        alone = service(node, "lone", {80: PORT, 81: SINK}, selector={"app": "lone"})
        time.sleep(2)
        attempt("connection and request through a ClusterIP, p50", through, client, alone, lone)
        watch = many(node, table)
        attempt("readiness changed to rule in force", truth, node, watch, zero)
        watch.stop()
        cut(node, client, zero, ip)
        node.return_bridge()
        for found in node.api.call("GET", SERVICES)["items"]:
            if (name := found["metadata"]["name"]) != "kubernetes":
                node.api.call("DELETE", f"{SERVICES}/{name}")
        node.api.call("DELETE", SLICES)
    finally:
        for pod in pods:
            pod.end()
    node.api.delete([pod.name for pod in pods])
