"""Google's gRPC (C core) as the peer of this project's, with messages as bytes: no .proto is needed.

grpc_peer.py client SOCKET: calls a server of this project, and fails if an answer is wrong.
grpc_peer.py server SOCKET: prints "ready", and serves until its input ends.
"""

import concurrent.futures
import sys
import threading
import time

import grpc


def method(channel, name):
    return channel.unary_unary("/t.T/" + name, request_serializer=None, response_deserializer=None)


def fails(call, code, *arguments, **options):
    try:
        call(*arguments, **options)
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error.details()
    raise AssertionError(f"{code} was expected")


def client(socket):
    long = bytes(range(256)) * (3 * 4096)
    text = "Gerät „Ofen“ ist 90 % zu heiß\n🔥"
    with grpc.insecure_channel("unix:" + socket) as channel:
        grpc.channel_ready_future(channel).result(timeout=20)
        echo = method(channel, "Echo")
        for message in (b"", b"a", b"b" * 70000, long):
            assert echo(message, timeout=20) == message, len(message)
        # Metadata that the server does not know.
        assert echo(b"c", timeout=20, metadata=(("a", "b"), ("c-bin", b"\0\xff"))) == b"c"
        assert fails(method(channel, "NotFound"), grpc.StatusCode.NOT_FOUND, text.encode(), timeout=20) == text
        fails(method(channel, "Nothing"), grpc.StatusCode.UNIMPLEMENTED, b"", timeout=20)
        fails(method(channel, "Drop"), grpc.StatusCode.INTERNAL, b"", timeout=20)
        start = time.monotonic()
        fails(method(channel, "Keep"), grpc.StatusCode.DEADLINE_EXCEEDED, b"", timeout=0.3)
        assert time.monotonic() - start < 5
        fails(method(channel, "Count"), grpc.StatusCode.RESOURCE_EXHAUSTED, b"x" * (5 << 20), timeout=20)
        fails(echo, grpc.StatusCode.UNIMPLEMENTED, b"x" * 5000, timeout=20, compression=grpc.Compression.Gzip)
        cancelled = method(channel, "Keep").future(b"", timeout=20)
        cancelled.cancel()
        # More calls at once than a connection permits streams.
        calls = [echo.future(b"%d" % number * 100, timeout=20) for number in range(100)]
        assert [call.result() for call in calls] == [b"%d" % number * 100 for number in range(100)]
        assert echo(long, timeout=20) == long
    # A connection for each call, as in mappers.
    for number in range(50):
        options = (("grpc.use_local_subchannel_pool", 1),)
        with grpc.insecure_channel("unix:" + socket, options=options) as channel:
            assert method(channel, "Echo")(b"%d" % number, timeout=5) == b"%d" % number


class Handlers(grpc.GenericRpcHandler):
    def service(self, details):
        name = details.method.rsplit("/", 1)[1].lower()
        handler = getattr(self, name, None)
        kind = grpc.unary_stream_rpc_method_handler if name.startswith("stream") else grpc.unary_unary_rpc_method_handler
        return handler and kind(handler)

    def echo(self, request, context):
        return request

    def notfound(self, request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, request.decode())

    def long(self, request, context):
        return b"x" * int(request)

    def late(self, request, context):
        # The client's timeout.
        assert context.time_remaining() < 10
        time.sleep(int(request) / 1000)
        return b""

    def streamsizes(self, request, context):
        # No deadline is told for a stream.
        left = context.time_remaining()
        assert left is None or left > 1e6, left
        for size in request.split():
            yield bytes(range(256)) * (int(size) // 256) + bytes(range(int(size) % 256))

    def streamslowly(self, request, context):
        yield b"first"
        time.sleep(int(request) / 1000)
        yield b"second"

    def streamfails(self, request, context):
        yield b"only"
        context.abort(grpc.StatusCode.NOT_FOUND, request.decode())

    def streamlives(self, request, context):
        # Until the client goes. If it goes before this message counts as sent, nothing after it runs.
        context.add_callback(self.gone.set)
        yield b"waits"
        self.gone.wait()

    def gonestream(self, request, context):
        return b"yes" if self.gone.wait(10) else b"no"

    gone = threading.Event()

    def authority(self, request, context):
        return context.peer().encode()


def server(socket):
    options = (("grpc.max_send_message_length", 16 << 20),)
    serving = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=[Handlers()], options=options)
    assert serving.add_insecure_port("unix:" + socket)
    serving.start()
    print("ready", flush=True)
    sys.stdin.read()
    serving.stop(None).wait()


if __name__ == "__main__":
    {"client": client, "server": server}[sys.argv[1]](sys.argv[2])
