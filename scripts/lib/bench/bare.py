"""Bare runc doing the same work, for comparison."""
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import time

from common import WORK


def runc():
    """Median of one `runc run -d` alone, and the time of fifty with as many at once as cores."""
    base = f"{WORK}/runc"
    rootfs = f"{base}/rootfs"
    os.makedirs(f"{rootfs}/bin")
    shutil.copy("/bin/busybox", f"{rootfs}/bin/busybox")
    spec = None
    ids = [f"{os.path.basename(WORK)}-{i}" for i in range(60)]

    def bundle(i):
        nonlocal spec
        folder = f"{base}/{i}"
        os.makedirs(folder)
        if spec is None:
            subprocess.run(["runc", "spec", "-b", folder], check=True)
            spec = json.load(open(f"{folder}/config.json"))
            spec["process"].update(terminal=False, args=["/bin/busybox", "sleep", "1000"])
            spec["root"] = {"path": rootfs, "readonly": True}
        json.dump(spec, open(f"{folder}/config.json", "w"))

    for i in range(60):
        bundle(i)

    def run(i):
        began = time.monotonic()
        subprocess.run(["runc", "--root", f"{base}/state", "run", "-d", "-b", f"{base}/{i}", ids[i]], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.monotonic() - began

    alone = statistics.median(run(i) for i in range(10))
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count())) as pool:
        list(pool.map(run, range(10, 60)))
    fifty = time.monotonic() - began
    for i in range(60):
        subprocess.run(["runc", "--root", f"{base}/state", "delete", "-f", ids[i]], check=True)
    return alone, fifty
