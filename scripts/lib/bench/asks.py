"""Questions from inside a pod's network, one after the other: `asks.py SERVER PORT FILE COUNT`. How long they took, as JSON."""
import json
import socket
import struct
import sys
import time

PAUSE = 0.0005


def question(number, name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", number & 0xFFFF, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"


if __name__ == "__main__":
    server, port, file, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    names = [line.split()[0] for line in open(file)]
    took, failed = [], 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        for number in range(count):
            packet = question(number, names[number % len(names)])
            began = time.perf_counter()
            try:
                s.sendto(packet, (server, port))
                while (answer := s.recv(4096))[:2] != packet[:2]:
                    pass
            except OSError:
                answer = b""
            took.append(time.perf_counter() - began)
            # No error, and at least one record.
            failed += len(answer) < 12 or answer[3] & 15 != 0 or answer[6:8] == b"\0\0"
            if failed > 20:
                break
            # A little less than one asker may ask.
            time.sleep(PAUSE)
    took.sort()
    print(json.dumps({"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "failed": failed}))
