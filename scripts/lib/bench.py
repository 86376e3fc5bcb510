"""The measurements of ./scripts/bench: starts a standalone bridge and a node of its own, measures, cleans up."""
import base64
import concurrent.futures
import glob
import http.client
import json
import os
import re
import shutil
import socket
import sqlite3
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REPO, WORK, NAMES = sys.argv[1], sys.argv[2], set(sys.argv[3:])
BIN = os.environ["SAMPAN_BIN"]
EDGE, BRIDGE = f"{BIN}/edge-runtime", f"{BIN}/cloud-bridge"
ROOT, STATE = f"{WORK}/n", f"{WORK}/b"
IMAGE = "docker.io/library/busybox:latest"
IDLE_SECONDS = int(os.environ.get("BENCH_IDLE_SECONDS", "120"))
rows = []


def wanted(name):
    return not NAMES or name in NAMES


def row(name, value, unit, budget=None, bare=None):
    rows.append({"name": name, "value": round(value, 4), "unit": unit, "budget": budget, "bare_runc": bare and round(bare, 4)})
    print(f"    {name}: {value:.3f} {unit}", flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait(limit, what, check):
    end = time.monotonic() + limit
    while True:
        got = check()
        if got:
            return got
        if time.monotonic() > end:
            raise SystemExit(f"bench: not within {limit} s: {what}")
        time.sleep(0.005)


class Api:
    """One connection to the API as the administrator, and a watch on pods."""

    def __init__(self, port):
        config = open(f"{STATE}/kubeconfig").read()
        data = {k: base64.b64decode(v) for k, v in re.findall(r'(certificate-authority-data|client-certificate-data|client-key-data)"?: "?([A-Za-z0-9+/=]+)', config)}
        self.context = ssl.create_default_context(cadata=data["certificate-authority-data"].decode())
        with tempfile.NamedTemporaryFile("wb", suffix=".pem") as pem:
            pem.write(data["client-certificate-data"] + b"\n" + data["client-key-data"])
            pem.flush()
            self.context.load_cert_chain(pem.name)
        self.port = port
        self.one = self.connect()
        self.ready, self.gone = {}, {}

    def connect(self):
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context)

    def call(self, method, path, body=None):
        self.one.request(method, path, body and json.dumps(body), {"Content-Type": "application/json", "Accept": "application/json"})
        answer = self.one.getresponse()
        data = json.loads(answer.read() or b"{}")
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {data.get('message')}")
        return data

    def watch(self):
        version = self.call("GET", "/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
        connection = self.connect()
        connection.request("GET", f"/api/v1/pods?watch=1&resourceVersion={version}", headers={"Accept": "application/json"})
        answer = connection.getresponse()

        def follow():
            while line := answer.readline():
                now, event = time.monotonic(), json.loads(line)
                name = event["object"]["metadata"].get("name")
                if event["type"] == "DELETED":
                    self.gone[name] = now
                elif any(c["type"] == "Ready" and c["status"] == "True" for c in event["object"].get("status", {}).get("conditions", [])):
                    self.ready.setdefault(name, now)

        threading.Thread(target=follow, daemon=True).start()

    def pod(self, name):
        container = {"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sleep", "1000000"]}
        spec = {"nodeName": "edge-1", "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}
        began = time.monotonic()
        self.call("POST", "/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        return began

    def delete(self, names):
        for name in names:
            self.call("DELETE", f"/api/v1/namespaces/default/pods/{name}")
        wait(60, "pods are deleted", lambda: all(name in self.gone for name in names))


class Node:
    def __init__(self):
        self.log = open(f"{WORK}/log", "ab")
        self.bridge = self.edge = None
        self.link_port, self.api_port = free_port(), free_port()

    def start(self):
        self.bridge = subprocess.Popen([BRIDGE, "standalone", "--state", STATE, "--listen", f"127.0.0.1:{self.link_port}", "--api-listen", f"127.0.0.1:{self.api_port}"], stdout=self.log, stderr=self.log)
        wait(20, "the kubeconfig is there", lambda: os.path.exists(f"{STATE}/kubeconfig") and not socket.socket().connect_ex(("127.0.0.1", self.api_port)))
        self.api = Api(self.api_port)
        token = re.search(r"sampan1\.\S+", self.run(BRIDGE, "token", "create", "edge-1", "--state", STATE)).group()
        self.run(EDGE, "join", "--root", ROOT, "--bridge", f"https://127.0.0.1:{self.link_port}", "--token", token, "--node", "edge-1")
        subprocess.run([f"{REPO}/scripts/lib/make-busybox-image.sh", f"{WORK}/bb.tar"], check=True, stdout=self.log)
        self.run(EDGE, "import", "--root", ROOT, f"{WORK}/bb.tar")
        self.start_edge()
        wait(30, "the node is Ready", self.is_ready)
        self.api.watch()

    def run(self, *command):
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=self.log, text=True).stdout

    def start_edge(self):
        self.edge = subprocess.Popen([EDGE, "run", "--root", ROOT], stdout=self.log, stderr=self.log)

    def is_ready(self):
        try:
            conditions = self.api.call("GET", "/api/v1/nodes/edge-1")["status"]["conditions"]
        except RuntimeError:
            return False
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def stop(self):
        for process in (self.edge, self.bridge):
            if process:
                process.kill()
                process.wait()
        subprocess.run([EDGE, "reset", "--all", "--root", ROOT], check=True, stdout=self.log, stderr=self.log)

    def pids(self):
        """The node's processes: the daemon and the monitor."""
        found = [self.edge.pid]
        for entry in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                words = open(entry).read().split("\0")
            except OSError:
                continue
            if len(words) > 1 and words[1] == "monitor" and ROOT in words:
                found.append(int(entry.split("/")[2]))
        return found


def pss(pids):
    total = 0
    for pid in pids:
        total += int(re.search(r"^Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M).group(1))
    return total / 1024


def cpu(pids):
    ticks = 0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def written(pids):
    return sum(int(re.search(r"^write_bytes: (\d+)", open(f"/proc/{pid}/io").read(), re.M).group(1)) for pid in pids)


def link_bytes(port):
    """Bytes both ways on the node's connection, with TCP/IP headers, as the kernel counts them."""
    text = subprocess.run(["ss", "-tinH", f"dport = :{port}"], stdout=subprocess.PIPE, text=True).stdout
    count = lambda key: sum(int(n) for n in re.findall(rf"\b{key}:(\d+)", text))
    # segs_out and segs_in include pure acknowledgements; 52 bytes are IPv4 and TCP with timestamps.
    return count("bytes_acked") + count("bytes_received") + 52 * (count("segs_out") + count("segs_in"))


def bare_runc():
    """Median of one `runc run -d` alone, and the time of fifty with as many at once as cores."""
    base = f"{WORK}/runc"
    rootfs = f"{base}/rootfs"
    os.makedirs(f"{rootfs}/bin")
    shutil.copy("/bin/busybox", f"{rootfs}/bin/busybox")
    spec = None
    ids = [f"{os.path.basename(WORK)}-{i}" for i in range(60)]

    def bundle(i):
        nonlocal spec
        folder = f"{base}/{i}"
        os.makedirs(folder)
        if spec is None:
            subprocess.run(["runc", "spec", "-b", folder], check=True)
            spec = json.load(open(f"{folder}/config.json"))
            spec["process"].update(terminal=False, args=["/bin/busybox", "sleep", "1000"])
            spec["root"] = {"path": rootfs, "readonly": True}
        json.dump(spec, open(f"{folder}/config.json", "w"))

    for i in range(60):
        bundle(i)

    def run(i):
        began = time.monotonic()
        subprocess.run(["runc", "--root", f"{base}/state", "run", "-d", "-b", f"{base}/{i}", ids[i]], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.monotonic() - began

    alone = statistics.median(run(i) for i in range(10))
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count())) as pool:
        list(pool.map(run, range(10, 60)))
    fifty = time.monotonic() - began
    for i in range(60):
        subprocess.run(["runc", "--root", f"{base}/state", "delete", "-f", ids[i]], check=True)
    return alone, fifty


def measure(node, bare):
    alone, fifty = bare
    time.sleep(3)
    if wanted("memory"):
        row("node processes PSS, idle", pss(node.pids()), "MB", 8)
        row("bridge PSS, idle, one node", pss([node.bridge.pid]), "MB", 15)
        row("threads of the daemon", len(os.listdir(f"/proc/{node.edge.pid}/task")), "", 2)
    if wanted("start"):
        took = []
        for i in range(20):
            began = node.api.pod(f"serial-{i}")
            wait(30, "a pod is Ready", lambda: f"serial-{i}" in node.api.ready)
            took.append(node.api.ready[f"serial-{i}"] - began)
        row("create -> Ready, serial, median of 20", statistics.median(took), "s", 0.10, alone)
        row("create -> Ready, serial, worst of 20", max(took), "s")
        node.api.delete([f"serial-{i}" for i in range(20)])
    if wanted("start") or wanted("memory") or wanted("cold"):
        names = [f"many-{i}" for i in range(50)]
        began = min(node.api.pod(name) for name in names)
        wait(120, "fifty pods are Ready", lambda: all(name in node.api.ready for name in names))
        if wanted("start"):
            row("50 pods at once, all Ready", max(node.api.ready[n] for n in names) - began, "s", 1.5, fifty)
        time.sleep(3)
        if wanted("memory"):
            row("node processes PSS, 50 pods", pss(node.pids()), "MB", 14)
            row("helper processes for 50 pods", len(node.pids()) - 1, "", 1)
            row("bridge PSS, 50 pods", pss([node.bridge.pid]), "MB")
        if wanted("cold"):
            cold_start(node, names, fifty)
        node.api.delete(names)
    if wanted("idle"):
        idle(node)


def cold_start(node, names, fifty):
    """All containers die with the power, the cloud is away, the daemon starts."""
    node.bridge.kill()
    node.bridge.wait()
    node.edge.kill()
    node.edge.wait()
    node.run(EDGE, "reset", "--root", ROOT)
    # What the store remembers is of an earlier boot.
    boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    with sqlite3.connect(f"{ROOT}/var/lib/edge-runtime/store.db") as store:
        store.execute("UPDATE pods SET record = replace(record, ?, 'an-earlier-boot')", (boot,))
        store.execute("UPDATE facts SET value = 'an-earlier-boot' WHERE key = 'boot-id'")
    store.close()
    began = time.monotonic()
    node.start_edge()

    def running():
        # What the OCI runtime has started has a pid file in its bundle; asking runc would take the cores it needs.
        return len(glob.glob(f"{ROOT}/run/edge-runtime/containers/*/pid")) >= len(names)

    wait(120, "fifty containers run again", running)
    row("cold start without cloud, 50 pods running", time.monotonic() - began, "s", 1.5, fifty)
    node.bridge = subprocess.Popen([BRIDGE, "standalone", "--state", STATE, "--listen", f"127.0.0.1:{node.link_port}", "--api-listen", f"127.0.0.1:{node.api_port}"], stdout=node.log, stderr=node.log)
    wait(20, "the API is back", lambda: not socket.socket().connect_ex(("127.0.0.1", node.api_port)))
    node.api = Api(node.api_port)
    wait(90, "the node is Ready again", node.is_ready)
    node.api.watch()


def idle(node):
    names = [f"idle-{i}" for i in range(20)]
    for name in names:
        node.api.pod(name)
    wait(60, "twenty pods are Ready", lambda: all(name in node.api.ready for name in names))
    time.sleep(15)
    pids = node.pids()
    before = cpu(pids), written(pids), link_bytes(node.link_port)
    print(f"    watching an idle node with 20 pods for {IDLE_SECONDS} s", flush=True)
    time.sleep(IDLE_SECONDS)
    after = cpu(pids), written(pids), link_bytes(node.link_port)
    hours = IDLE_SECONDS / 3600
    row("idle, 20 pods: CPU of one core", (after[0] - before[0]) / IDLE_SECONDS * 100, "%", 0.1)
    row("idle, 20 pods: written to disk per hour", (after[1] - before[1]) / 1e6 / hours, "MB", 0.2)
    row("idle, 20 pods: on the link per hour", (after[2] - before[2]) / 1e6 / hours, "MB", 0.08)
    node.api.delete(names)


def sizes():
    for target, name in [("aarch64-unknown-linux-gnu", "aarch64"), ("armv7-unknown-linux-gnueabihf", "armv7")]:
        path = f"{REPO}/target/{target}/release/edge-runtime"
        if os.path.exists(path):
            row(f"static binary, {name}", os.path.getsize(path) / 1e6, "MB", 5)
        else:
            print(f"    static binary, {name}: not built (./scripts/cross {name})")


def report():
    print(f"\n{'what':<48}{'ours':>12}{'budget':>10}{'bare runc':>12}")
    for r in rows:
        budget = "-" if r["budget"] is None else f"{r['budget']:g}"
        bare = "-" if r["bare_runc"] is None else f"{r['bare_runc']:.3f}"
        over = "" if r["budget"] is None or r["value"] <= r["budget"] else "  OVER"
        print(f"{r['name']:<48}{r['value']:>9.3f} {r['unit']:<2}{budget:>10}{bare:>12}{over}")
    json.dump(rows, open(f"{REPO}/target/bench/bench.json", "w"), indent=1)


def main():
    print("==> bare runc, for comparison", flush=True)
    bare = bare_runc()
    row("runc run -d, alone, median of 10", bare[0], "s")
    row("runc run -d, 50, as many at once as cores", bare[1], "s")
    if NAMES - {"runc", "sizes"} or not NAMES:
        print("==> a bridge and a node", flush=True)
        node = Node()
        try:
            node.start()
            measure(node, bare)
        finally:
            node.stop()
    if wanted("sizes"):
        sizes()
    report()


main()
