"""kube-proxy in a network of its own, beside the node, where BENCH_KUBE_PROXY names one: the same Services by its rules."""
import os
import socket
import subprocess
import threading
import time

from common import WORK
from node import STATE
from ruleset import Watch, enter

NAME = "smp-bench-proxy"


def start(node, in_force):
    """None where there is none. `in_force` waits for its rules."""
    return Proxy(node, os.environ["BENCH_KUBE_PROXY"], in_force) if os.environ.get("BENCH_KUBE_PROXY") else None


def copy(one, other):
    try:
        while data := one.recv(1 << 16):
            other.sendall(data)
    except OSError:
        pass
    finally:
        one.close(), other.close()


class Proxy:
    def __init__(self, node, program, in_force):
        subprocess.run(["ip", "netns", "add", NAME], check=True)
        self.process, self.watch = None, None
        try:
            subprocess.run(["ip", "-n", NAME, "link", "set", "lo", "up"], check=True)
            # A way out, which leads nowhere: it wants to know its address. A bridge, as not every kernel has dummy links.
            for words in ["link add d0 type bridge", "address add 198.51.100.1/24 dev d0", "link set d0 up", "route add default dev d0"]:
                subprocess.run(["ip", "-n", NAME, *words.split()], check=True)
            self.ended = False
            listening = threading.Event()
            threading.Thread(target=self.relay, args=(node.api_port, listening), daemon=True).start()
            listening.wait(5)
            self.watch = Watch("kube-proxy", f"/run/netns/{NAME}")
            self.begin(program, in_force)
        except BaseException:
            self.stop()
            raise

    def begin(self, program, in_force):
        began = time.monotonic()
        self.process = subprocess.Popen([
            "ip", "netns", "exec", NAME, program, "--kubeconfig", f"{STATE}/kubeconfig", "--proxy-mode", "nftables",
            "--hostname-override", "edge-1", "--healthz-bind-address", "127.0.0.1:10256", "--metrics-bind-address", "127.0.0.1:10249",
            # What these set is the host's, not a network's.
            "--conntrack-max-per-core", "0", "--conntrack-min", "0",
            "--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0",
        ], stdout=open(f"{WORK}/kube-proxy.log", "ab"), stderr=subprocess.STDOUT)
        self.took = in_force(self.watch, began)

    def relay(self, port, listening):
        """The API's port, inside as outside: sockets belong to the network in which they were made."""
        inside = []

        def listen():
            enter(f"/run/netns/{NAME}")
            with socket.create_server(("127.0.0.1", port)) as server:
                server.settimeout(0.5)
                listening.set()
                while not self.ended:
                    try:
                        inside.append(server.accept()[0])
                    except TimeoutError:
                        pass

        threading.Thread(target=listen, daemon=True).start()
        while not self.ended:
            while inside:
                near, far = inside.pop(), socket.create_connection(("127.0.0.1", port))
                for pair in [(near, far), (far, near)]:
                    threading.Thread(target=copy, args=pair, daemon=True).start()
            time.sleep(0.01)

    def stop(self):
        self.ended = True
        if self.process:
            self.process.kill()
            self.process.wait()
        if self.watch:
            self.watch.stop()
        subprocess.run(["ip", "netns", "delete", NAME], check=False)
