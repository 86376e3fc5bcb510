"""A device plugin with Google's gRPC (C core), with messages made by hand: no .proto is needed.

device_plugin.py ROOT: serves at ROOT/device-plugins/python.sock, registers, and does what its input says, a line each:
devices A B (lists them as healthy), slow SECONDS (allocates as slowly), fail (ends the stream with an error), restart (serves
again and registers).
Prints "ready" after each.
"""

import concurrent.futures
import os
import queue
import sys
import time

import grpc

RESOURCE = "example.com/python"


def field(number, value):
    if isinstance(value, int):
        return bytes([number << 3, value])
    value = value.encode() if isinstance(value, str) else value
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def devices(names):
    return b"".join(field(1, field(1, name) + field(2, "Healthy")) for name in names)


class Plugin(grpc.GenericRpcHandler):
    def __init__(self, root):
        self.folder = os.path.join(root, "device-plugins")
        self.names = ["one", "two"]
        self.pause = 0
        self.changes = queue.Queue()
        self.server = None

    def service(self, details):
        name = details.method.removeprefix("/v1beta1.DevicePlugin/")
        handler = getattr(self, name, None)
        stream = name == "ListAndWatch"
        kind = grpc.unary_stream_rpc_method_handler if stream else grpc.unary_unary_rpc_method_handler
        return handler and kind(handler)

    def GetDevicePluginOptions(self, request, context):
        return field(1, 1) + field(2, 1)

    def ListAndWatch(self, request, context):
        yield devices(self.names)
        while context.is_active():
            change = self.changes.get()
            if change == "fail":
                context.abort(grpc.StatusCode.INTERNAL, "unplugged")
            yield devices(self.names)

    def GetPreferredAllocation(self, request, context):
        # The last device is the one.
        return field(1, field(1, self.names[-1]))

    def Allocate(self, request, context):
        assert request == field(1, field(1, self.names[-1])), request
        time.sleep(self.pause)
        device = field(1, "/dev/inside") + field(2, "/dev/null") + field(3, "rw")
        mount = field(1, "/inside") + field(2, "/outside") + field(3, 1)
        env = field(1, "DEVICE") + field(2, self.names[-1])
        note = field(1, "example.com/note") + field(2, "text")
        return field(1, field(1, env) + field(2, mount) + field(3, device) + field(4, note))

    def PreStartContainer(self, request, context):
        assert request == field(1, self.names[-1]), request
        return b""

    def start(self):
        socket = os.path.join(self.folder, "python.sock")
        if self.server:
            self.server.stop(None).wait()
        if os.path.exists(socket):
            os.remove(socket)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), handlers=[self])
        assert self.server.add_insecure_port("unix:" + socket)
        self.server.start()
        register = field(1, "v1beta1") + field(2, "python.sock") + field(3, RESOURCE)
        with grpc.insecure_channel("unix:" + os.path.join(self.folder, "kubelet.sock")) as channel:
            call = channel.unary_unary("/v1beta1.Registration/Register")
            assert call(register, timeout=20) == b""
            wrong = field(1, "v1alpha") + field(2, "python.sock") + field(3, RESOURCE)
            try:
                call(wrong, timeout=20)
            except grpc.RpcError as error:
                assert 'Supported version is ["v1beta1"]' in error.details(), error
            else:
                raise AssertionError("a wrong version was taken")


def main(root):
    plugin = Plugin(root)
    plugin.start()
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "devices":
            plugin.names = rest
            plugin.changes.put("list")
        elif word == "slow":
            plugin.pause = int(rest[0])
        elif word == "fail":
            plugin.changes.put("fail")
        elif word == "restart":
            # The stream that is open ends with its server.
            plugin.changes.put("list")
            plugin.start()
        print("ready", flush=True)
    # Threads that wait for changes must not hold the process.
    os._exit(0)


main(sys.argv[1])
