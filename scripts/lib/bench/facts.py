"""Where and when the figures were measured."""
import os
import platform
import subprocess
import time

from common import AGAINST, NAMES, REPO, ROUNDS, RUNTIME, WORK


def said(*command):
    """The first line of what a command prints; nothing if it fails."""
    try:
        text = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    except OSError:
        return ""
    return text.strip().split("\n")[0]


def of_file(path, key):
    """The value of the first line `key: value`."""
    with open(path) as file:
        found = (line.split(":", 1)[1].strip() for line in file if line.startswith(key))
        return next(found, "unknown")


def facts():
    """By name, in the order of the page. Call it before the first measurement: the load is that of others."""
    memory = int(of_file("/proc/meminfo", "MemTotal").split()[0]) / 1e6
    disk = said("findmnt", "-n", "-o", "FSTYPE,SOURCE", "-T", WORK) or "unknown"
    more = {"compared with": said(f"{AGAINST}/edge-runtime", "--version") or "another build"} if AGAINST else {}
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "version": said("git", "describe", "--always", "--dirty") or "unknown",
        "measured": ", ".join(sorted(NAMES)) or "all",
        "rounds": str(ROUNDS),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {of_file('/proc/cpuinfo', 'model name')}, {memory:.1f} GB",
        "kernel": f"{platform.release()}, cgroup {'v2' if os.path.exists('/sys/fs/cgroup/cgroup.controllers') else 'v1'}",
        "disk": " ".join(disk.split()),
        "OCI runtime": said(RUNTIME, "--version"),
        "load before": open("/proc/loadavg").read().split()[0],
    } | more
