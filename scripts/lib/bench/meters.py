"""Reading what the kernel knows of processes and connections."""
import glob
import os
import re
import subprocess


def pss(pids):
    total = 0
    for pid in pids:
        total += int(re.search(r"^Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M).group(1))
    return total / 1024


def cpu(pids):
    """Seconds on a processor, of all threads there are now, as the scheduler counts them: in nanoseconds."""
    total = 0
    for pid in pids:
        for file in glob.glob(f"/proc/{pid}/task/*/schedstat"):
            with open(file) as stat:
                total += int(stat.read().split()[0])
    return total / 1e9


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
