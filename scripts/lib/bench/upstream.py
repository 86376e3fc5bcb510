"""A name server that has the same address for every name, for an hour: `upstream.py ADDRESS`."""
import socket
import sys

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind((sys.argv[1], 53))
    while True:
        packet, asker = s.recvfrom(4096)
        end = packet.index(0, 12) + 5
        answer = packet[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + packet[12:end] + b"\xc0\x0c\0\1\0\1\0\0\x0e\x10\0\4\xc6\x33\x64\1"
        s.sendto(answer, asker)
