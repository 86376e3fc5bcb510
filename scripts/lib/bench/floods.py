"""A pod that asks for a name as often as it is told, and reads no answer: `floods.py SERVER NAME A_SECOND SECONDS`. How often it asked."""
import socket
import sys
import time

from asks import question

if __name__ == "__main__":
    server, name, rate, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    packet, sent, began = question(1, name), 0, time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((server, 53))
        s.setblocking(False)
        while (passed := time.monotonic() - began) < seconds:
            # What is due, and then a millisecond's rest.
            for _ in range(int(passed * rate) - sent):
                try:
                    s.send(packet)
                except OSError:
                    pass
                sent += 1
            time.sleep(0.001)
    print(sent)
