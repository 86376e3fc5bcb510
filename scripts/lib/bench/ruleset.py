"""What the kernel says of its nftables as they change: when a transaction that touched a table was done, and what it named."""
import ctypes
import socket
import struct
import threading
import time

import news

NETLINK_NETFILTER, NFNLGRP_NFTABLES, NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWGEN = 12, 7, 10, 15
SO_RCVBUFFORCE, CLONE_NEWNET = 33, 0x40000000


def enter(namespace):
    """This thread goes into the network namespace of this path."""
    with open(namespace) as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), namespace)


class Watch:
    """Follows the tables whose name begins with `prefix`, in a namespace if one is given."""

    def __init__(self, prefix, namespace=None):
        self.prefix, self.namespace = prefix.encode(), namespace
        self.done = []  # (when, what its messages were) of each transaction
        self.ended = False
        self.begun = threading.Event()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()
        self.begun.wait(10)

    def follow(self):
        if self.namespace:
            enter(self.namespace)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as kernel:
            kernel.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
            kernel.bind((0, 1 << (NFNLGRP_NFTABLES - 1)))
            kernel.settimeout(0.5)
            self.begun.set()
            seen = []
            while not self.ended:
                try:
                    data, now = kernel.recv(1 << 20), time.monotonic()
                except TimeoutError:
                    continue
                except OSError:
                    # More than fits: the end of the transaction is told, or the next one.
                    continue
                at = 0
                while at + 16 <= len(data):
                    length, kind = struct.unpack_from("=IH", data, at)
                    message = data[at + 20 : at + length]
                    at += max(16, (length + 3) & ~3)
                    if kind >> 8 != NFNL_SUBSYS_NFTABLES:
                        continue
                    if kind & 0xFF == NFT_MSG_NEWGEN:
                        if seen:
                            self.done.append((now, b"".join(seen)))
                            news.tell()
                        seen = []
                    elif self.prefix in message[:64]:
                        seen.append(message)

    def after(self, moment, named=b"", limit=5):
        """When the first transaction after that moment was done that names these bytes; none within the limit."""
        return news.until(limit, lambda: next((when for when, messages in self.done if when > moment and named in messages), None))

    def rest(self, quiet):
        """When the last transaction was done, once there was none for so long."""
        while not self.done or time.monotonic() - self.done[-1][0] < quiet:
            time.sleep(0.05)
        return self.done[-1][0]

    def stop(self):
        self.ended = True
        self.thread.join()
