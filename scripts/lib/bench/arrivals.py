"""Waits for files that appear below a folder, told by the kernel (inotify(7)): looking for them would take processor time."""
import ctypes
import fnmatch
import os
import select
import struct
import time

IN_MOVED_TO, IN_CREATE, IN_ONLYDIR = 0x80, 0x100, 0x01000000
EVENT = struct.Struct("iIII")
libc = ctypes.CDLL(None, use_errno=True)


class Arrivals:
    """Collects in `files` what matches `parts`, one pattern for each level below `top`."""

    def __init__(self, top, *parts):
        self.files, self.watched = set(), {}
        self.kernel = libc.inotify_init1(os.O_CLOEXEC)
        if self.kernel < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self.enter(top, parts)

    def enter(self, folder, parts):
        number = libc.inotify_add_watch(self.kernel, folder.encode(), IN_CREATE | IN_MOVED_TO | IN_ONLYDIR)
        if number < 0:
            return  # A file, or gone again.
        self.watched[number] = folder, parts
        # Files that came before the watch.
        for name in os.listdir(folder):
            self.came(number, name)

    def came(self, number, name):
        folder, (first, *rest) = self.watched[number]
        if not fnmatch.fnmatch(name, first):
            return
        if rest:
            self.enter(f"{folder}/{name}", rest)
        else:
            self.files.add(f"{folder}/{name}")

    def until(self, count, limit):
        """Whether there are `count` files within `limit` seconds."""
        end = time.monotonic() + limit
        while len(self.files) < count:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.kernel], [], [], left)[0]:
                return False
            self.read(os.read(self.kernel, 1 << 16))
        return True

    def read(self, events):
        at = 0
        while at < len(events):
            number, _mask, _cookie, size = EVENT.unpack_from(events, at)
            name = events[at + EVENT.size : at + EVENT.size + size].rstrip(b"\0").decode()
            at += EVENT.size + size
            if name and number in self.watched:
                self.came(number, name)

    def close(self):
        os.close(self.kernel)
