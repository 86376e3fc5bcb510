"""A hostile mapper with handmade HTTP/2: floods, incomplete messages, registrations with sockets of others, reports about
unknown devices, and a server that closes the connection as soon as it is called.

dmi_hostile.py FOLDER NAME PROTOCOL SECONDS: does all of it at once, then prints the numbers as JSON.
"""

import collections
import json
import os
import socket
import struct
import sys
import threading
import time

FOLDER, NAME, PROTOCOL, SECONDS = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
UNTIL = time.monotonic() + SECONDS
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
counts = collections.Counter()


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def block(fields):
    """Literal fields without an index (RFC 7541, 6.2.2), of less than 127 bytes each."""
    return b"".join(b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in field) for field in fields)


def head(method):
    path = "/v1beta1.DeviceManagerService/" + method
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("content-type", "application/grpc"), ("te", "trailers")]
    return block(fields)


def field(number, value):
    """A length-delimited field of a protobuf message, shorter than 16 KiB."""
    length = len(value)
    size = bytes([length]) if length < 128 else bytes([length % 128 + 128, length // 128])
    return bytes([number * 8 + 2]) + size + value


def request(stream, method, message):
    body = b"\0" + struct.pack(">I", len(message)) + message
    return frame(HEADERS, 4, stream, head(method)) + frame(DATA, 1, stream, body)


def registration(address, protocol):
    mapper = field(1, NAME.encode()) + field(2, b"v1") + field(4, protocol.encode()) + field(5, address)
    # Without data: its devices arrive by calls.
    return b"\x08\x00" + field(2, mapper)


def report(namespace, name):
    twin = field(1, b"temp") + field(3, field(1, b"666"))
    return field(1, name) + field(2, field(1, twin)) + field(3, namespace)


def connect():
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(2)
    stream.connect(FOLDER + "/dmi.sock")
    return stream


def greeted():
    stream = connect()
    stream.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return stream


def over_and_over(what):
    def run():
        while time.monotonic() < UNTIL:
            try:
                what()
            except OSError:
                counts["refused"] += 1
                time.sleep(0.01)

    return run


def flood(kind, payload):
    def once():
        with greeted() as stream:
            for _ in range(2_000):
                stream.sendall(frame(kind, 0, 0, payload) * 20)
                counts["frames"] += 20

    return once


def resets():
    with greeted() as stream:
        for number in range(1, 4_000, 2):
            stream.sendall(frame(HEADERS, 4, number, head("ReportDeviceStatus")) + frame(RST_STREAM, 0, number, b"\0\0\0\x08"))
            counts["resets"] += 1


def halves():
    held = []
    whole = PREFACE + frame(SETTINGS, 0, 0) + request(1, "MapperRegister", registration(b"x", PROTOCOL))
    for cut in range(1, len(whole), 3):
        stream = connect()
        stream.sendall(whole[:cut])
        held.append(stream)
        counts["halves"] += 1
        if len(held) > 40:
            held.pop(0).close()
    for stream in held:
        stream.close()


def answered(method, message):
    with greeted() as stream:
        stream.sendall(request(1, method, message))
        heard = b""
        while b"grpc-status" not in heard and len(heard) < 60 + 9 * 4:
            more = stream.recv(4_096)
            if not more:
                break
            heard += more
        counts[method] += 1


def elsewhere():
    for address in [
        b"/run/edge-runtime/devices.sock",
        b"/etc/shadow",
        b"",
        FOLDER.encode(),
        FOLDER.encode() + b"/dmi.sock",
        FOLDER.encode() + b"/../x.sock",
        FOLDER.encode() + b"/a/b.sock",
        FOLDER.encode() + b"/a\0b",
    ]:
        answered("MapperRegister", registration(address, "lab"))


def strangers():
    for namespace, name in [(b"kube-system", b"t1"), (b"..", b"t1"), (b"default/t1", b""), (b"", b"t1"), (b"a" * 253, b"b" * 253)]:
        answered("ReportDeviceStatus", report(namespace, name))


def goes_away():
    """If devices of its protocol exist, it gets calls, and closes the connection on each."""
    address = FOLDER + "/" + NAME + ".sock"
    server = socket.socket(socket.AF_UNIX)
    if os.path.exists(address):
        os.unlink(address)
    server.bind(address)
    server.listen(16)
    server.settimeout(0.2)
    answered("MapperRegister", registration(address.encode(), PROTOCOL))
    while time.monotonic() < UNTIL:
        try:
            stream, _ = server.accept()
        except OSError:
            continue
        counts["called"] += 1
        with stream:
            stream.sendall(frame(SETTINGS, 0, 0) + frame(GOAWAY, 0, 0, b"\0" * 8))
            stream.settimeout(0.2)
            try:
                stream.recv(4_096)
            except OSError:
                pass


def main():
    while not os.path.exists(FOLDER + "/dmi.sock"):
        time.sleep(0.05)
    attacks = [over_and_over(what) for what in (flood(PING, b"\1" * 8), flood(SETTINGS, b""), flood(0x42, b"\0" * 8), resets, halves, elsewhere, strangers)]
    threads = [threading.Thread(target=attack) for attack in [*attacks, goes_away]]
    for thread in threads:
        thread.start()
    print("begun", flush=True)
    for thread in threads:
        thread.join()
    print(json.dumps(counts), flush=True)


main()
