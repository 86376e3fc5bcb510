"""The emulated machine on the disk with a cache: power on, power off, commands, and its API server."""

import base64
import http.client
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time


class Died(Exception):
    """The board does not answer; only a cut may do that."""


def until(seconds, what, test):
    deadline = time.monotonic() + seconds
    while True:
        found = test()
        if found:
            return found
        if time.monotonic() > deadline:
            raise Died(f"{what}: not within {seconds} s")
        time.sleep(0.2)


class Board:
    def __init__(self, options):
        self.options = options
        self.number = 0
        self.qemu = self.disk = None

    def path(self, name):
        return os.path.join(self.options.work, name)

    def power_on(self, seed):
        self.number += 1
        for name in ("disk.sock", "control.sock"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        here = os.path.dirname(os.path.abspath(__file__))
        self.disk = subprocess.Popen(
            [sys.executable, os.path.join(here, "disk.py"), self.options.disk, self.path("disk.sock"), str(seed)],
            stdout=subprocess.PIPE, text=True,
        )
        assert self.disk.stdout.readline() == "listening\n"
        self.serial = self.path(f"serial-{self.number}.log")
        environment = dict(os.environ, LD_LIBRARY_PATH=self.options.libraries)
        with open(self.path("qemu.log"), "ab") as log:
            self.qemu = subprocess.Popen(
                [self.options.qemu, *self.options.data.split(), "-accel", "tcg", "-M", "q35", "-cpu", "max", "-smp", "2",
                 "-m", "1536", "-nodefaults", "-display", "none", "-no-reboot", "-kernel", self.options.kernel,
                 "-initrd", self.options.initramfs, "-append", "console=ttyS0 quiet panic=1",
                 "-serial", f"file:{self.serial}",
                 "-drive", f"file=nbd+unix:///?socket={self.path('disk.sock')},format=raw,if=none,id=disk,cache=writeback",
                 "-device", "virtio-blk-pci,drive=disk",
                 "-chardev", f"socket,id=control,path={self.path('control.sock')},server=on,wait=off",
                 "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=control,name=control",
                 "-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self.options.port}-10.0.2.15:6443",
                 "-device", "virtio-net-pci,netdev=net"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )
        self.control = socket.socket(socket.AF_UNIX)
        until(20, "the emulator's control socket", lambda: self.control.connect_ex(self.path("control.sock")) == 0)
        self.buffer = b""
        line = self.line(240)
        if line != "@ready":
            raise Died(f"the board said {line!r} instead of @ready")

    def stuck(self):
        """Whether the machine's kernel says that one of its processors does not go on. No program of the board can do that:
        now and then an emulated processor misses an interrupt of the other, or the host has no time for it."""
        with open(self.serial, errors="replace") as log:
            said = log.read()
        return "soft lockup" in said or "detected stalls" in said

    def line(self, seconds):
        deadline = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            self.control.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                more = self.control.recv(65536)
            except (TimeoutError, OSError) as error:
                raise Died(f"the board does not answer: {error}") from None
            if not more:
                raise Died("the emulator ended")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode(errors="replace").rstrip("\r")

    def run(self, command, seconds=120):
        """Exit code and output of a command line on the board."""
        try:
            # An output without a newline at its end would hide the line that ends it.
            self.control.sendall(f"{command}; code=$?; echo; exit $code\n".encode())
        except OSError as error:
            raise Died(str(error)) from None
        output = []
        while not (line := self.line(seconds)).startswith("@end "):
            output.append(line)
        return int(line[5:]), "\n".join(output).removesuffix("\n")

    def must(self, command, seconds=120):
        code, output = self.run(command, seconds)
        if code:
            raise Died(f"{command}: exit code {code}: {output[-2000:]}")
        return output

    def stop_disk(self):
        """The disk does nothing any more, from the next flush on that would write something."""
        self.disk.send_signal(signal.SIGUSR1)
        # A machine that has nothing more to write is cut as it is.
        select.select([self.disk.stdout], [], [], 10)

    def power_off(self):
        """The power goes. Returns what became of the disk's cache."""
        if self.qemu:
            self.qemu.kill()
            self.qemu.wait()
            self.control.close()
            self.qemu = None
        if self.disk:
            said, _ = self.disk.communicate(timeout=120)
            code, self.disk = self.disk.returncode, None
            if code:
                raise Died(f"the disk ended with {code}")
            return json.loads(said.splitlines()[-1])
        return {}

    def end(self):
        for process in (self.qemu, self.disk):
            if process:
                process.kill()
                process.wait()


class Api:
    """The embedded API, as its administrator reaches it from outside of the board, over one connection for each thread. A
    connection that died is an OSError: nobody knows what became of the request."""

    def __init__(self, kubeconfig, port, work):
        config = json.loads(kubeconfig)
        user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
        pem = os.path.join(work, "admin.pem")
        with open(pem, "wb") as file:
            file.write(base64.b64decode(user["client-certificate-data"]))
            file.write(base64.b64decode(user["client-key-data"]))
        self.tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        self.tls.check_hostname = False
        self.tls.load_cert_chain(pem)
        self.port = port
        self.mine = threading.local()

    def forget(self):
        """After a cut no old connection is any good."""
        self.mine = threading.local()

    def ask(self, method, path, body=None, seconds=120):
        connection = getattr(self.mine, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.tls)
        self.mine.connection = None
        connection.timeout = seconds
        if connection.sock:
            connection.sock.settimeout(seconds)
        good = False
        try:
            text = None if body is None else json.dumps(body)
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            connection.request(method, path, text, {"content-type": kind})
            answer = connection.getresponse()
            said = answer.status, json.loads(answer.read() or b"null")
            good = not answer.will_close
            return said
        except http.client.HTTPException as error:
            raise OSError(str(error)) from None
        except ValueError:
            raise OSError("half an answer") from None
        finally:
            if good:
                self.mine.connection = connection
            else:
                connection.close()

    def get(self, path):
        """An answer of any code; an API that is only just up, or slow, is asked again."""
        for _ in range(5):
            try:
                return self.ask("GET", path)
            except OSError as error:
                said = error
                time.sleep(1)
        raise Died(f"GET {path}: {said!r}")
