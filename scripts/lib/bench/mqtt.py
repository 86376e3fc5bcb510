"""A publisher and a listener of MQTT 3.1.1 with QoS 0, of nothing but a socket: what is measured is not the client."""
import json
import socket
import threading
import time

from news import tell


def length(number):
    out = b""
    while True:
        number, digit = number >> 7, number & 127
        out += bytes([digit | (128 if number else 0)])
        if not number:
            return out


def text(words):
    return len(words).to_bytes(2, "big") + words


class Client:
    def __init__(self, port, name):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        body = text(b"MQTT") + b"\x04\x02\x00\x00" + text(name.encode())
        self.socket.sendall(b"\x10" + length(len(body)) + body)
        assert self.packet()[0] == 0x20

    def packet(self):
        kind, number, shift = self.file.read(1)[0], 0, 0
        while True:
            digit = self.file.read(1)[0]
            number |= (digit & 127) << shift
            shift += 7
            if digit < 128:
                return kind, self.file.read(number)

    @staticmethod
    def packed(topic, payload):
        body = text(topic.encode()) + payload.encode()
        return b"\x30" + length(len(body)) + body

    def publish(self, topic, payload):
        self.socket.sendall(self.packed(topic, payload))

    def listen(self, topic):
        """From now on what comes is in `heard`: the moment, the topic and what was said."""
        body = b"\x00\x01" + text(topic.encode()) + b"\x00"
        self.socket.sendall(b"\x82" + length(len(body)) + body)
        assert self.packet()[0] == 0x90
        self.heard = []

        def follow():
            try:
                while True:
                    _, body = self.packet()
                    now, size = time.monotonic(), int.from_bytes(body[:2], "big")
                    self.heard.append((now, body[2 : 2 + size].decode(), json.loads(body[2 + size :])))
                    tell()
            except (IndexError, OSError, ValueError):
                pass

        threading.Thread(target=follow, daemon=True).start()
