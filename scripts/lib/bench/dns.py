"""Names: how many questions a second the helper answers on one core, and how soon; a peer beside it on the same core."""
import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
import time

from common import WORK, row, wait
from connected import HERE, Pod
from meters import cpu
from node import STATE
from services import service

UPSTREAM, OURS, PEER = "127.0.53.53", 53, 5300
SECONDS, FOREIGN = 5, 200
# Each may ask 2,000 times a second.
ASKERS = 64
# What one pod asks that means harm, in a second.
FLOOD = 20_000


def questions():
    """Names of the cluster, and of others, as dnsperf reads them."""
    with open(f"{WORK}/cluster.txt", "w") as file:
        file.writelines(f"name-{i}.default.svc.cluster.local A\n" for i in range(20))
    with open(f"{WORK}/others.txt", "w") as file:
        file.writelines(f"host-{i}.example.test A\n" for i in range(FOREIGN))


def peer(node, gateway, clients):
    """CoreDNS that follows the API as in a cluster, or dnsmasq with the same names as its own; its process."""
    log = open(f"{WORK}/peer.log", "ab")
    if program := os.environ.get("BENCH_COREDNS"):
        with open(f"{WORK}/Corefile", "w") as file:
            file.write(f""".:{PEER} {{
    bind {gateway}
    kubernetes cluster.local {{
        kubeconfig {STATE}/kubeconfig
    }}
    forward . {UPSTREAM}
    cache 30
}}
""")
        return "CoreDNS", subprocess.Popen([program, "-conf", f"{WORK}/Corefile"], stdout=log, stderr=log)
    names = [f"--host-record=name-{i}.default.svc.cluster.local,{ip}" for i, ip in enumerate(clients)]
    command = ["dnsmasq", "-k", "-C", "/dev/null", "-R", "-h", f"--port={PEER}", f"--listen-address={gateway}", "--bind-interfaces", f"--server={UPSTREAM}", "--cache-size=2000", "--user=root", *names]
    return "dnsmasq", subprocess.Popen(command, stdout=log, stderr=log)


def on_core(pid, core):
    subprocess.run(["taskset", "-acp", str(core), str(pid)], check=True, stdout=subprocess.DEVNULL)


def many_askers(client, gateway):
    """The pod asks from many addresses of the node's range from now on, as many pods would: one may not ask without end."""
    hosts = list(ipaddress.ip_network(f"{gateway}/24", strict=False).hosts())[-ASKERS:]
    for ip in hosts:
        subprocess.run(client.command("ip", "addr", "add", f"{ip}/32", "dev", "eth0"), check=True)
    turns = ", ".join(f"{turn} : {ip}" for turn, ip in enumerate(hosts))
    rules = f"""table ip askers {{
        chain out {{
            type nat hook postrouting priority srcnat
            ip protocol udp snat to numgen inc mod {ASKERS} map {{ {turns} }}
        }}
    }}"""
    subprocess.run(client.command("nft", "-f", "-"), input=rules, text=True, check=True)


def a_second(client, at, port, pid, file):
    """Questions that were answered in a second with 64 under way, the server alone on its core."""
    on_core(pid, 0)
    before = cpu([pid])
    core = "1" if os.cpu_count() > 1 else "0"
    command = client.command("taskset", "-c", core, "dnsperf", "-s", at, "-p", str(port), "-d", file, "-c", str(ASKERS), "-T", "1", "-q", str(ASKERS), "-l", str(SECONDS))
    text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    used = (cpu([pid]) - before) / SECONDS
    found, lost = re.search(r"Queries per second:\s+([\d.]+)", text), re.search(r"Queries lost:\s+(\d+)", text)
    if not found:
        raise SystemExit("bench: dnsperf: " + text)
    wrong = re.search(r"Response codes:\s+(.*)", text)
    print(f"    {found[1]} a second, {lost[1]} lost, {used * 100:.0f} % of a core, {wrong and wrong[1]}", flush=True)
    return float(found[1])


def soon(client, at, port, file):
    """p50 and p99 of one question after the other, in seconds."""
    text = client.run("asks.py", at, str(port), file, "3000").communicate(timeout=60)[0]
    return json.loads(text)


def flood(client, loud, gateway):
    """What one pod asks while another one asks without end."""
    calm = soon(client, gateway, OURS, f"{WORK}/cluster.txt")
    flooding = loud.run("floods.py", gateway, "name-1.default.svc.cluster.local", str(FLOOD), "10")
    time.sleep(1)
    amid = soon(client, gateway, OURS, f"{WORK}/cluster.txt")
    sent = int(flooding.communicate(timeout=60)[0]) / 10
    print(f"    another pod asks {sent:.0f} times a second; of 3000 {amid['failed']} failed", flush=True)
    row("a name while another pod floods: p99", amid["p99"] * 1e3, "ms", 5 + calm["p99"] * 1e3, calm["p99"] * 1e3)


def measure(node, _bare):
    for program in ("dnsperf", os.environ.get("BENCH_COREDNS") or "dnsmasq"):
        if not shutil.which(program):
            raise SystemExit(f"bench: {program} is not installed")
    questions()
    around, other, pods = node.around, None, []
    upstream = subprocess.Popen([sys.executable, f"{HERE}/upstream.py", UPSTREAM])
    try:
        for name in ("asker", "loud"):
            pods.append(Pod(node, name, name))
        client, loud = pods
        ips = [service(node, f"name-{i}", {80: 8080}) for i in range(20)]
        gateway = subprocess.run(client.command("ip", "route", "show", "default"), stdout=subprocess.PIPE, text=True).stdout.split()[2]
        # The node asks the server of this test. A helper that another daemon has left would go on to ask another one.
        with open(f"{WORK}/resolv.conf", "w") as file:
            file.write(f"nameserver {UPSTREAM}\n")
        node.stop_edge()
        for pid in node.helpers("dns"):
            os.kill(pid, 9)
        node.around = ["unshare", "--mount", "sh", "-c", f'mount --bind {WORK}/resolv.conf /etc/resolv.conf && exec "$0" "$@"']
        node.start_edge()
        node.around = around
        helper = wait(30, "a helper runs", lambda: node.helpers("dns"))[0]
        known = lambda: soon(client, gateway, OURS, f"{WORK}/cluster.txt")["failed"] == 0
        wait(30, "the helper knows the names", known)
        name, other = peer(node, gateway, ips)
        wait(30, f"{name} knows the names", lambda: soon(client, gateway, PEER, f"{WORK}/cluster.txt")["failed"] == 0)
        flood(client, loud, gateway)
        many_askers(client, gateway)
        for what, file in [("names of the cluster", f"{WORK}/cluster.txt"), ("others' names, from cache", f"{WORK}/others.txt")]:
            # Asked once before it counts.
            for port in (OURS, PEER):
                soon(client, gateway, port, file)
            ours, theirs = (a_second(client, gateway, port, pid, file) for port, pid in [(OURS, helper), (PEER, other.pid)])
            row(f"{what}: questions a second (beside {name})", ours, "", 5000, theirs, at_least=True)
            ours, theirs = (soon(client, gateway, port, file) for port in (OURS, PEER))
            row(f"{what}: p50 (beside {name})", ours["p50"] * 1e3, "ms", None, theirs["p50"] * 1e3)
            row(f"{what}: p99 (beside {name})", ours["p99"] * 1e3, "ms", 2, theirs["p99"] * 1e3)
            if ours["failed"]:
                raise SystemExit(f"bench: {ours['failed']} questions about {what} were not answered")
    finally:
        for process in filter(None, (other, upstream)):
            process.kill()
            process.wait()
        for pod in pods:
            pod.end()
        node.around = around
    for i in range(20):
        node.api.call("DELETE", f"/api/v1/namespaces/default/services/name-{i}")
    node.api.delete(["asker", "loud"])
