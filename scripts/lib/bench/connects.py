"""Connections from inside a pod's network. `watch IP SECONDS`: one after the other; when each began and who answered, as JSON.
`compare IP IP`: seconds of a connection with a request by the first and by the second, and bytes a second, medians as JSON."""
import json
import socket
import statistics
import struct
import sys
import time

from served import PORT, SINK

RESET = struct.pack("ii", 1, 0)


def ask(ip, port):
    with socket.create_connection((ip, port), timeout=2) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(b"who\n")
        answer = s.recv(64)
        # So that no port waits for its second use.
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return answer.decode().strip()


def watch(ip, seconds):
    seen, end = {}, time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        try:
            who = ask(ip, 80)
        except OSError as error:
            who = f"failed: {error}"
        seen.setdefault(who, []).append(began)
        time.sleep(0.0005)
    print(json.dumps(seen), flush=True)


def stream(ip, port, seconds=2):
    sent, block = 0, bytes(1 << 18)
    with socket.create_connection((ip, port), timeout=5) as s:
        began = time.monotonic()
        while (took := time.monotonic() - began) < seconds:
            sent += s.send(block)
    return sent / took


def compare(through, straight):
    ways = [(through, 80, 81), (straight, PORT, SINK)]
    took = [[], []]
    for turn in range(4000):
        # Each goes first as often.
        for way in (0, 1) if turn % 2 else (1, 0):
            began = time.perf_counter()
            ask(*ways[way][:2])
            took[way].append(time.perf_counter() - began)
    flow = [[], []]
    for turn in range(5):
        for way in (0, 1) if turn % 2 else (1, 0):
            flow[way].append(stream(ways[way][0], ways[way][2]))
    print(json.dumps({"seconds": [statistics.median(t) for t in took], "bytes": [statistics.median(f) for f in flow]}))


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        watch(sys.argv[2], float(sys.argv[3]))
    else:
        compare(sys.argv[2], sys.argv[3])
