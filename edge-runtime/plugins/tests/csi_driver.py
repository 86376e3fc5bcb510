"""A CSI driver with Google's gRPC (C core), with messages made by hand: no .proto is needed. Volumes are folders that it
mounts for real (mount(2), MS_BIND).

csi_driver.py ROOT NAME STATE: serves at ROOT/plugins/NAME/csi.sock and registers in ROOT/plugins_registry. In STATE:
calls        a line for each call, once it is done: method and path
seen         the last publication, as JSON
wrong        a line for each call that must not come
hold         "METHOD before" or "METHOD after", renamed to `held` by the call that stops there until `held` is removed
fail         METHOD whose next call fails
flood        METHOD whose next answer is longer than any may be
"""

import concurrent.futures
import ctypes
import hashlib
import json
import os
import sys
import threading
import time

import grpc

LIBC = ctypes.CDLL(None, use_errno=True)
MS_BIND = 4096
CAPABILITIES = [1, 3]  # STAGE_UNSTAGE_VOLUME, EXPAND_VOLUME


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def parse(message):
    """Values of all fields, by number."""
    fields, at = {}, 0

    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        assert key & 7 in (0, 2), key
        value = number()
        if key & 7 == 2:
            at += value
            assert at <= len(message)
            value = message[at - value : at]
        fields.setdefault(key >> 3, []).append(value)
    return fields


def text(fields, number):
    return fields.get(number, [b""])[-1].decode()


def pairs(fields, number):
    entries = [parse(entry) for entry in fields.get(number, [])]
    return {text(entry, 1): text(entry, 2) for entry in entries}


def mount(source, target):
    if LIBC.mount(source.encode(), target.encode(), None, MS_BIND, None):
        raise OSError(ctypes.get_errno(), target)


def is_mounted(path):
    with open("/proc/self/mountinfo", encoding="utf-8") as table:
        return any(line.split()[4] == path for line in table)


def unmount(path):
    while is_mounted(path):
        if LIBC.umount2(path.encode(), 0):
            raise OSError(ctypes.get_errno(), path)


class Driver(grpc.GenericRpcHandler):
    def __init__(self, root, name, state):
        self.root, self.name, self.state = root, name, state
        self.socket = os.path.join(root, "plugins", name, "csi.sock")
        self.lock = threading.Lock()
        # Targets by handle: what must not be unstaged.
        self.published = {}

    def path(self, name):
        return os.path.join(self.state, name)

    def note(self, name, line):
        with open(self.path(name), "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def wanted(self, name, line):
        try:
            with open(self.path(name), encoding="utf-8") as file:
                return file.read().strip() == line
        except FileNotFoundError:
            return False

    def stop(self, method, point):
        if self.wanted("hold", f"{method} {point}"):
            os.rename(self.path("hold"), self.path("held"))
            while os.path.exists(self.path("held")):
                time.sleep(0.01)

    def service(self, details):
        method = details.method.rsplit("/", 1)[-1]
        handler = getattr(self, method, None)
        if handler is None:
            return None

        def handle(request, context):
            fields = parse(request)
            self.stop(method, "before")
            if self.wanted("fail", method):
                os.remove(self.path("fail"))
                context.abort(grpc.StatusCode.INTERNAL, "as asked for")
            if self.wanted("flood", method):
                os.remove(self.path("flood"))
                return bytes(16 << 20)
            with self.lock:
                answer = handler(fields)
            self.stop(method, "after")
            if method.startswith("Node") and not method.startswith("NodeGet"):
                self.note("calls", method)
            return answer

        return grpc.unary_unary_rpc_method_handler(handle)

    # Registration and identity.

    def GetInfo(self, _):
        return field(1, "CSIPlugin") + field(2, self.name) + field(3, self.socket) + field(4, "1.0.0")

    def NotifyRegistrationStatus(self, fields):
        if fields.get(1) != [1]:
            self.note("refused", text(fields, 2))
        return b""

    def GetPluginInfo(self, _):
        return field(1, self.name) + field(2, "test")

    def NodeGetInfo(self, _):
        zone = field(1, "example.com/zone") + field(2, "z1")
        return field(1, "node-1") + field(2, 7) + field(3, field(1, zone))

    def NodeGetCapabilities(self, _):
        return b"".join(field(1, field(1, field(1, capability))) for capability in CAPABILITIES)

    # The controller, at the same socket. It keeps no volumes.

    def Probe(self, _):
        return field(1, field(1, 1))

    def CreateVolume(self, fields):
        self.note("calls", "CreateVolume")
        size = parse(fields[2][-1])[1][-1]
        return field(1, field(1, size) + field(2, "volume of " + text(fields, 1)))

    # Volumes.

    def volume(self, handle):
        folder = self.path(hashlib.sha256(handle.encode()).hexdigest())
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "handle"), "w", encoding="utf-8") as file:
            file.write(handle)
        return folder

    def NodeStageVolume(self, fields):
        handle, path = text(fields, 1), text(fields, 3)
        is_block = 1 in parse(fields[4][-1])
        if not is_block and not is_mounted(path):
            mount(self.volume(handle), path)
        return b""

    def NodePublishVolume(self, fields):
        handle, staging, target = text(fields, 1), text(fields, 3), text(fields, 4)
        access = parse(fields[5][-1])
        seen = {
            "readOnly": fields.get(6) == [1],
            "mode": parse(access[3][-1])[1][-1],
            "secrets": pairs(fields, 7),
            "context": pairs(fields, 8),
        }
        if 2 in access:
            kind = parse(access[2][-1])
            seen["fsType"] = text(kind, 1)
            seen["flags"] = [flag.decode() for flag in kind.get(2, [])]
            if not staging:
                # An inline volume.
                staging = self.volume(handle)
            elif not is_mounted(staging):
                self.note("wrong", f"{target} is published, and {staging} is not staged")
            os.makedirs(target, exist_ok=True)
        elif not os.path.exists(target):
            with open(target, "w", encoding="utf-8"):
                pass
        if not is_mounted(target):
            mount(staging if 2 in access else "/dev/null", target)
        self.published.setdefault(handle, set()).add(target)
        with open(self.path("seen"), "w", encoding="utf-8") as file:
            json.dump(seen, file)
        return b""

    def NodeUnpublishVolume(self, fields):
        handle, target = text(fields, 1), text(fields, 2)
        unmount(target)
        if os.path.isdir(target):
            os.rmdir(target)
        elif os.path.exists(target):
            os.remove(target)
        self.published.get(handle, set()).discard(target)
        return b""

    def NodeUnstageVolume(self, fields):
        handle, path = text(fields, 1), text(fields, 2)
        if self.published.get(handle):
            self.note("wrong", f"{path} is unstaged, and a pod has it")
        unmount(path)
        return b""

    def NodeExpandVolume(self, fields):
        size = parse(fields[3][-1])[1][-1]
        self.note("sizes", str(size))
        return field(1, size)

    def serve(self):
        registry = os.path.join(self.root, "plugins_registry")
        for folder in (registry, os.path.dirname(self.socket), self.state):
            os.makedirs(folder, exist_ok=True)
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), handlers=[self])
        # The registration comes last: the driver serves by then.
        for socket in (self.socket, os.path.join(registry, f"{self.name}-reg.sock")):
            if os.path.exists(socket):
                os.remove(socket)
            assert server.add_insecure_port("unix:" + socket)
        server.start()
        server.wait_for_termination()


Driver(*sys.argv[1:]).serve()
