"""How fast `kubectl cp` and `kubectl port-forward` move bytes, beside a plain TCP copy on this host."""
import hashlib
import os
import socket
import subprocess
import threading
import time

from common import WORK, row

SIZE = 100_000_000
# An nc whose input has ended closes its side at once, and a kubectl takes that for the end of all.
SERVE = """mkdir -p /tmp/web; httpd -p 8080 -h /tmp/web; mkfifo /tmp/open; exec 3<>/tmp/open
while :; do nc -l -p 9000 <&3 > /tmp/part; mv /tmp/part /tmp/upload; done"""


def speed(began):
    return SIZE / 1e6 / (time.monotonic() - began)


def plain(data):
    """Megabytes a second through one connection on loopback, read to the end at the other side."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def send():
            with socket.create_connection(server.getsockname()) as s:
                s.sendall(data)

        began = time.monotonic()
        thread = threading.Thread(target=send)
        thread.start()
        with server.accept()[0] as s:
            while s.recv(1 << 16):
                pass
        thread.join()
        return speed(began)


class Forward:
    def __init__(self, node, port):
        self.child = subprocess.Popen(node.kubectl("port-forward", "pod/flow", f":{port}"), stdout=subprocess.PIPE, text=True)
        self.port = int(self.child.stdout.readline().split(":")[1].split(" ")[0])

    def __enter__(self):
        return socket.create_connection(("127.0.0.1", self.port))

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()


def same(node, path, digest):
    said = node.run(*node.kubectl("exec", "flow", "--", "sha256sum", path))
    if said.split()[0] != digest:
        raise SystemExit(f"bench: {path} is not what was sent")


def measure(node, _bare):
    data = os.urandom(SIZE)
    digest = hashlib.sha256(data).hexdigest()
    with open(f"{WORK}/big", "wb") as out:
        out.write(data)
    floor = plain(data)
    row("plain TCP copy, 100 MB", floor, "MB/s")
    node.api.pod("flow", ["/bin/sh", "-c", SERVE])
    node.api.started("flow")
    began = time.monotonic()
    node.run(*node.kubectl("cp", f"{WORK}/big", "flow:/tmp/copied"))
    row("kubectl cp, up", speed(began), "MB/s", None, floor)
    same(node, "/tmp/copied", digest)
    began = time.monotonic()
    node.run(*node.kubectl("cp", "flow:/tmp/copied", f"{WORK}/back"))
    row("kubectl cp, down", speed(began), "MB/s", None, floor)
    with Forward(node, 9000) as s:
        began = time.monotonic()
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        while s.recv(1 << 16):
            pass
        row("kubectl port-forward, up", speed(began), "MB/s", None, floor)
    same(node, "/tmp/upload", digest)
    node.run(*node.kubectl("exec", "flow", "--", "mv", "/tmp/copied", "/tmp/web/big"))
    with Forward(node, 8080) as s:
        began, got = time.monotonic(), 0
        s.sendall(b"GET /big HTTP/1.0\r\n\r\n")
        while piece := s.recv(1 << 16):
            got += len(piece)
        row("kubectl port-forward, down", speed(began), "MB/s", None, floor)
        if got < SIZE:
            raise SystemExit(f"bench: {got} bytes came down, {SIZE} were to come")
    node.api.delete(["flow"])
