#!/usr/bin/env python3
"""A disk with a write cache, as an NBD server for one client: what was written is acknowledged from memory and reaches
the image at a flush alone. When the client dies, its power is cut: a part of what was not flushed reaches the image, each
sector or not, chosen by the seed, and the rest is lost.

    disk.py IMAGE SOCKET SEED

SIGUSR1 makes the cut itself come at the next flush that has something to write: the worst moment, which a cut by the
clock hardly ever meets where flushes are many. From then on no request is answered.

Prints at the end, as JSON, what became of the cache."""

import json
import os
import random
import signal
import socket
import struct
import sys

OPTION, OPTION_REPLY, REQUEST, REPLY = 0x49484156454F5054, 0x3E889045565A9, 0x25609513, 0x67446698
HAS_FLAGS, SEND_FLUSH, SEND_FUA = 1, 4, 8
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
PAGE, SECTOR = 4096, 512
# A real cache is finite: beyond this the oldest writes go to the disk by themselves.
CACHE = 256 << 20


class Cache:
    def __init__(self, image):
        self.image = image
        self.writes = []  # (offset, data) in order, not flushed
        self.pages = {}  # what a read finds: page number -> content
        self.size = self.flushes = 0
        self.cut_at_flush = False

    def read(self, offset, length):
        data = bytearray(os.pread(self.image, length, offset))
        data.extend(bytes(length - len(data)))
        if self.pages:
            for page in range(offset // PAGE, (offset + length - 1) // PAGE + 1):
                cached = self.pages.get(page)
                if cached is not None:
                    start = max(offset, page * PAGE)
                    end = min(offset + length, (page + 1) * PAGE)
                    data[start - offset : end - offset] = cached[start - page * PAGE : end - page * PAGE]
        return data

    def write(self, offset, data):
        end, at = offset + len(data), offset
        while at < end:
            page = at // PAGE
            stop = min(end, (page + 1) * PAGE)
            cached = self.pages.get(page)
            if cached is None:
                cached = bytearray(os.pread(self.image, PAGE, page * PAGE))
                cached.extend(bytes(PAGE - len(cached)))
                self.pages[page] = cached
            cached[at - page * PAGE : stop - page * PAGE] = data[at - offset : stop - offset]
            at = stop
        self.writes.append((offset, data))
        self.size += len(data)
        if self.size > CACHE:
            self.flush()

    def ends_here(self):
        return self.cut_at_flush and bool(self.writes)

    def flush(self):
        for offset, data in self.writes:
            os.pwrite(self.image, data, offset)
        self.writes.clear()
        self.pages.clear()
        self.size = 0
        self.flushes += 1

    def cut(self, seed):
        chance = random.Random(seed)
        # From a cache that had nothing written back to one that had nearly all of it, in any order.
        share = chance.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        kept = lost = 0
        for offset, data in self.writes:
            # Most disks write pages as a whole; some do not.
            unit = SECTOR if chance.random() < 0.1 else PAGE
            for at in range(0, len(data), unit):
                part = data[at : at + unit]
                if chance.random() < share:
                    os.pwrite(self.image, part, offset + at)
                    kept += len(part)
                else:
                    lost += len(part)
        return {"flushes": self.flushes, "writes": len(self.writes), "kept": kept, "lost": lost, "share": share}


def receive(stream, length):
    data = stream.read(length)
    if data is None or len(data) < length:
        raise EOFError
    return data


def negotiate(stream, size):
    flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA
    stream.write(b"NBDMAGIC" + struct.pack(">QH", OPTION, 3))
    stream.flush()
    (client,) = struct.unpack(">I", receive(stream, 4))

    def reply(option, kind, data=b""):
        stream.write(struct.pack(">QIII", OPTION_REPLY, option, kind, len(data)) + data)
        stream.flush()

    while True:
        magic, option, length = struct.unpack(">QII", receive(stream, 16))
        if magic != OPTION:
            raise ValueError("no option")
        receive(stream, length)
        if option == 1:  # NBD_OPT_EXPORT_NAME
            stream.write(struct.pack(">QH", size, flags) + (b"" if client & 2 else bytes(124)))
            stream.flush()
            return
        if option in (6, 7):  # NBD_OPT_INFO, NBD_OPT_GO
            reply(option, 3, struct.pack(">HQH", 0, size, flags))
            reply(option, 1)
            if option == 7:
                return
        elif option == 2:  # NBD_OPT_ABORT
            reply(option, 1)
            raise EOFError
        else:
            reply(option, 0x80000001)  # NBD_REP_ERR_UNSUP


def serve(stream, cache):
    """Returns False when the power is gone, or the client with it; True when the client left in order."""
    while True:
        try:
            magic, flags, kind, handle, offset, length = struct.unpack(">IHHQQI", receive(stream, 28))
            if magic != REQUEST:
                raise ValueError("no request")
            data = receive(stream, length) if kind == WRITE else None
        except (EOFError, ConnectionResetError):
            return False
        answer, error = b"", 0
        if kind == READ:
            answer = cache.read(offset, length)
        elif kind == WRITE:
            cache.write(offset, data)
            if flags & 1:  # FUA: flushing more than was asked for is what a disk may do.
                if cache.ends_here():
                    return False
                cache.flush()
        elif kind == FLUSH:
            if cache.ends_here():
                return False
            cache.flush()
        elif kind == DISCONNECT:
            return True
        else:
            error = 22
        try:
            stream.write(struct.pack(">IIQ", REPLY, error, handle) + answer)
            stream.flush()
        except (BrokenPipeError, ConnectionResetError):
            return False


def main():
    path, address, seed = sys.argv[1:4]
    image = os.open(path, os.O_RDWR)
    size = os.fstat(image).st_size
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(1)
    print("listening", flush=True)
    client, _ = listener.accept()
    stream = client.makefile("rwb", buffering=1 << 20)
    cache = Cache(image)

    def arm(*_):
        cache.cut_at_flush = True

    signal.signal(signal.SIGUSR1, arm)
    negotiate(stream, size)
    if serve(stream, cache):
        cache.flush()
        print(json.dumps({"flushes": cache.flushes, "end": "in order"}))
    else:
        print(json.dumps(cache.cut(seed)), flush=True)
    os.fsync(image)
    # A machine whose disk answers an error would do other things than one without power.
    try:
        while client.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass


if __name__ == "__main__":
    main()
