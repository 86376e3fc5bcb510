"""Reading what the kernel knows of processes, connections and the host."""
import os
import re
import statistics
import subprocess
import time

import figures


def pss(pids):
    total = 0
    for pid in pids:
        total += int(re.search(r"^Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M).group(1))
    return total / 1024


def cpu(pids):
    """CPU seconds (user and system) of these processes, with threads that have ended, in nanoseconds' precision."""
    # The clock of a process, as clock_getcpuclockid(3) makes it; utime and stime of /proc count in ticks of 10 ms.
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


def children(pids):
    """Seconds on a processor of the processes that these have started and that have ended."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(") ", 1)[1].split()
        ticks += int(fields[13]) + int(fields[14])
    return ticks / os.sysconf("SC_CLK_TCK")


def written(pids):
    return sum(int(re.search(r"^write_bytes: (\d+)", open(f"/proc/{pid}/io").read(), re.M).group(1)) for pid in pids)


def link_bytes(port):
    """Bytes both ways on the node's connection, with TCP/IP headers, as the kernel counts them."""
    text = subprocess.run(["ss", "-tinH", f"dport = :{port}"], stdout=subprocess.PIPE, text=True).stdout
    count = lambda key: sum(int(n) for n in re.findall(rf"\b{key}:(\d+)", text))
    # segs_out and segs_in include pure acknowledgements; 52 bytes are IPv4 and TCP with timestamps.
    return count("bytes_acked") + count("bytes_received") + 52 * (count("segs_out") + count("segs_in"))


class Steal:
    """CPU time that the hypervisor gave to others from now on."""

    def __init__(self):
        self.before = self.read()

    @staticmethod
    def read():
        with open("/proc/stat") as stat:
            return [int(word) for word in stat.readline().split()[1:]]

    def percent(self):
        return figures.stolen(self.before, self.read())


def sync_median(folder, times=30, size=16 << 10):
    """Median of fdatasync after an append of `size` bytes, on the disk of this folder, in seconds."""
    took, path = [], f"{folder}/sync"
    with open(path, "wb", buffering=0) as file:
        for _ in range(times):
            file.write(os.urandom(size))
            began = time.monotonic()
            os.fdatasync(file.fileno())
            took.append(time.monotonic() - began)
    os.unlink(path)
    return statistics.median(took)
