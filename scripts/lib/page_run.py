"""The measurement of ./scripts/page-run: a bridge with its page, simulated nodes, and so many who look."""
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "bench"))
from meters import cpu, pss  # noqa: E402

BIN, WORK, NODES = sys.argv[1], sys.argv[2], int(sys.argv[3])
# A bridge without the page, for comparison: no viewers.
OFF = sys.argv[4:] == ["off"]
VIEWERS = [0] if OFF else [int(word) for word in sys.argv[4:]] or [0, 1, 20, 0]
SWARM = os.environ.get("SAMPAN_SWARM", f"{BIN}/swarm")
SECONDS = int(os.environ.get("PAGE_SECONDS", "30"))
# Pods per second, each of which is two or three changes of a node that the page shows.
RATE = 10
# A user has eight streams at most.
EACH = 8
STATE = f"{WORK}/state"
# For nodes to connect, and before the first figure.
PATIENCE, REST = 900, 30


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Viewer:
    """One open page: reads the stream and counts."""

    def __init__(self, port, token):
        context = ssl.create_default_context(cafile=f"{STATE}/pki/ca.crt")
        began = time.monotonic()
        self.stream = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1")
        head = f"GET /api/stream HTTP/1.1\r\nHost: page\r\nAuthorization: Bearer {token}\r\nAccept-Encoding: gzip\r\n\r\n"
        self.stream.sendall(head.encode())
        self.bytes = self.first = 0
        self.took = self.failed = None
        self.thread = threading.Thread(target=self.read, args=(began,), daemon=True)
        self.thread.start()

    def read(self, began):
        last = began
        try:
            while data := self.stream.recv(1 << 16):
                if not self.bytes and b" 200 " not in data.split(b"\r\n", 1)[0]:
                    self.failed = data[:200]
                now = time.monotonic()
                # All nodes come first, without a pause.
                if self.took is None and self.bytes and now - last > 0.3:
                    self.first, self.took = self.bytes, last - began
                self.bytes, last = self.bytes + len(data), now
        except OSError:
            pass

    def close(self):
        try:
            self.stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.thread.join(5)
        self.stream.close()


def kubectl(*words):
    return subprocess.run(["kubectl", f"--kubeconfig={STATE}/kubeconfig", *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def tokens():
    kubectl("create", "clusterrole", "look", "--verb=list", "--resource=nodes")
    made = []
    for number in range(-(-max(VIEWERS) // EACH)):
        kubectl("create", "serviceaccount", f"looker-{number}")
        kubectl("create", "clusterrolebinding", f"look-{number}", "--clusterrole=look", f"--serviceaccount=default:looker-{number}")
        made.append(kubectl("create", "token", f"looker-{number}", "--duration=3h"))
    return made


def watch(what, bridge, port, known):
    """For each number of viewers: what the bridge takes."""
    for count in VIEWERS:
        before = cpu([bridge.pid])
        viewers = [Viewer(port, known[at // EACH]) for at in range(count)]
        time.sleep(10)
        opened = cpu([bridge.pid]) - before
        start, sent, began = cpu([bridge.pid]), sum(v.bytes for v in viewers), time.monotonic()
        time.sleep(SECONDS)
        passed = time.monotonic() - began
        used = (cpu([bridge.pid]) - start) / passed * 100
        news = (sum(v.bytes for v in viewers) - sent) / passed / max(1, count) / 1024
        memory = pss([bridge.pid])
        if failed := [v.failed for v in viewers if v.failed]:
            sys.exit(f"page-run: not let in: {failed[0]}")
        line = f"{what}, {count:2} look: CPU {used:5.1f} % of a core, PSS {memory:6.1f} MB"
        if count:
            took = sorted(v.took or 0 for v in viewers)[-1]
            line += f"; to each {viewers[0].first / 1024:.0f} KiB at first (the last one had them after {took:.2f} s), then {news:.1f} KiB/s; opening, 10 s: {opened:.2f} s of CPU"
        print(line, flush=True)
        for viewer in viewers:
            viewer.close()
        time.sleep(5)


def main():
    link, api, page = (free_port() for _ in range(3))
    log = open(f"{WORK}/bridge.log", "ab")
    bridge = subprocess.Popen([f"{BIN}/cloud-bridge", "standalone", "--state", STATE, "--listen", f"127.0.0.1:{link}", "--api-listen", f"127.0.0.1:{api}",
                               *([] if OFF else ["--page", f"127.0.0.1:{page}"]), "--deleted-nodes-return", "--log-level", "warn"], stdout=log, stderr=log)
    swarm = None
    try:
        while not os.path.exists(f"{STATE}/kubeconfig"):
            time.sleep(0.1)
        for _ in range(100):
            if subprocess.run(["kubectl", f"--kubeconfig={STATE}/kubeconfig", "get", "--raw", "/readyz"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.2)
        known = tokens()
        each = (SECONDS + 17) * len(VIEWERS)
        swarm = subprocess.Popen([SWARM, "--link", f"127.0.0.1:{link}", "--ca", f"{STATE}/pki/ca.crt", "--ca-key", f"{STATE}/pki/ca.key", "--kubeconfig",
                                  f"{STATE}/kubeconfig", "--pid", str(bridge.pid), "--nodes", str(NODES), "--idle", str(each + REST),
                                  "--pods", str(RATE * (each + 60)), "--rate", str(RATE)], stdout=subprocess.PIPE, stderr=log, text=True)
        ended = threading.Timer(PATIENCE, swarm.kill)
        ended.start()
        for line in swarm.stdout:
            print(f"    {line.rstrip()}", flush=True)
            if line.startswith("first connect"):
                ended.cancel()
                time.sleep(REST)
                print(f"    load of the host: {open('/proc/loadavg').read().split()[0]}", flush=True)
                watch("idle", bridge, page, known)
            elif re.match("idle [0-9]+ s", line):
                # The line after it is said at once, and then pods are made.
                print(f"    {swarm.stdout.readline().rstrip()}", flush=True)
                time.sleep(5)
                print(f"    load of the host: {open('/proc/loadavg').read().split()[0]}", flush=True)
                return watch(f"{RATE} pods a second", bridge, page, known)
        sys.exit(f"page-run: the simulated nodes ended: {open(log.name).read()[-1000:]}")
    finally:
        for process in (swarm, bridge):
            if process:
                process.kill()
                process.wait()


main()
