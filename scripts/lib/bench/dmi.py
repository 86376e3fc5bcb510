"""A mapper over DMI, of nothing but sockets and HTTP/2 frames (RFC 9113): what is measured is not the mapper."""
import os
import socket
import threading
import time

from news import tell

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, body=b""):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


# No answer waits for room (SETTINGS_INITIAL_WINDOW_SIZE, and the connection's own).
BEGUN = PREFACE + frame(SETTINGS, 0, 0, b"\x00\x04\x7f\xff\xff\xff") + frame(WINDOW_UPDATE, 0, 0, b"\x7f\x00\x00\x00")


def literal(text):
    """Neither indexed nor Huffman-coded (RFC 7541, 6.2.2)."""
    return bytes([len(text)]) + text


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number, value):
    """A length-delimited field of a message (protobuf)."""
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def request(stream, method, message):
    path = f"/v1beta1.DeviceManagerService/{method}".encode()
    # POST, http, :path, :authority, content-type, te.
    head = b"\x83\x86\x04" + literal(path) + b"\x01" + literal(b"localhost") + b"\x0f\x10" + literal(b"application/grpc") + b"\x00" + literal(b"te") + literal(b"trailers")
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    return frame(HEADERS, END_HEADERS, stream, head) + frame(DATA, END_STREAM, stream, body)


def report(device, text):
    """ReportDeviceStatusRequest as the framework makes it: one property."""
    metadata = field(2, field(1, "type") + field(2, "int")) + field(2, field(1, "timestamp") + field(2, ""))
    twin = field(1, "temp") + field(2, metadata) + field(3, field(1, text) + metadata)
    return field(1, device) + field(2, field(1, twin)) + field(3, "default")


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")
        self.stream = -1
        self.begun = BEGUN

    def call(self, method, message):
        self.stream += 2
        self.socket.sendall(self.begun + request(self.stream, method, message))
        self.begun, answer = b"", b""
        while True:
            kind, flags, body = self.read()
            if kind == DATA:
                answer += body
            elif kind == SETTINGS and not flags & ACK:
                self.socket.sendall(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self.socket.sendall(frame(PING, ACK, 0, body))
            if kind == HEADERS and flags & END_STREAM:
                assert answer[:1] == b"\0", f"{method} is refused"
                return answer[5:]

    def read(self):
        head = self.file.read(9)
        return head[3], head[4], self.file.read(int.from_bytes(head[:3], "big"))

    def close(self):
        self.file.close()
        self.socket.close()


class Mapper:
    """Takes every call, and remembers when what came."""

    def __init__(self, folder, protocol):
        self.heard = []
        self.path = f"{folder}/bench.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        threading.Thread(target=self.accept, daemon=True).start()
        info = field(1, "bench") + field(2, "1") + field(3, "v1beta1") + field(4, protocol) + field(5, self.path) + field(6, "ok")
        connection = Connection(f"{folder}/dmi.sock")
        connection.call("MapperRegister", b"\x08\x01" + field(2, info))
        connection.close()

    def accept(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection):
        file = connection.makefile("rb")
        assert file.read(len(PREFACE)) == PREFACE
        connection.sendall(frame(SETTINGS, 0, 0))
        while len(head := file.read(9)) == 9:
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            body = file.read(int.from_bytes(head[:3], "big"))
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                connection.sendall(frame(PING, ACK, 0, body))
            elif kind == DATA:
                self.heard.append((time.monotonic(), body))
                tell()
                if flags & END_STREAM:
                    begun = b"\x88\x0f\x10" + literal(b"application/grpc")
                    ended = b"\x00" + literal(b"grpc-status") + literal(b"0")
                    connection.sendall(frame(HEADERS, END_HEADERS, stream, begun) + frame(DATA, 0, stream, b"\0" * 5) + frame(HEADERS, END_HEADERS | END_STREAM, stream, ended))

    def end(self):
        self.listener.close()
        os.unlink(self.path)
