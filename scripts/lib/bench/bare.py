"""The OCI runtime by itself doing the same work, for comparison."""
import concurrent.futures
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

from common import RUNTIME, WORK, row
from meters import Steal

NAME = os.path.basename(RUNTIME)
# As the start of one pod after the other, and of many at once.
ALONE, MANY = 10, 50


@dataclasses.dataclass
class Bare:
    """Seconds of one start alone (median), and of fifty with as many at once as cores."""

    one: float = None
    fifty: float = None


def bundles(base):
    """The folders of containers that sleep, all with the same root."""
    os.makedirs(f"{base}/rootfs/bin")
    shutil.copy("/bin/busybox", f"{base}/rootfs/bin/busybox")
    subprocess.run([RUNTIME, "spec"], cwd=base, check=True)
    with open(f"{base}/config.json") as file:
        spec = json.load(file)
    spec["process"].update(terminal=False, args=["/bin/busybox", "sleep", "1000"])
    spec["root"] = {"path": f"{base}/rootfs", "readonly": True}
    folders = [f"{base}/{i}" for i in range(ALONE + MANY)]
    for folder in folders:
        os.makedirs(folder)
        with open(f"{folder}/config.json", "w") as file:
            json.dump(spec, file)
    return folders


def measure(found):
    """Fills in a `Bare`."""
    base = tempfile.mkdtemp(prefix="bare-", dir=WORK)
    folders = bundles(base)
    name = lambda folder: f"{os.path.basename(WORK)}-{os.path.basename(folder)}"

    def run(folder):
        began = time.monotonic()
        command = [RUNTIME, "--root", f"{base}/state", "run", "-d", "-b", folder, name(folder)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.monotonic() - began

    try:
        steal = Steal()
        alone = statistics.median(run(folder) for folder in folders[:ALONE])
        row(f"{NAME} run -d, alone, median of {ALONE}", alone, "s", steal=steal.percent())
        steal, began = Steal(), time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count())) as pool:
            list(pool.map(run, folders[ALONE:]))
        fifty = time.monotonic() - began
        row(f"{NAME} run -d, {MANY}, as many at once as cores", fifty, "s", steal=steal.percent())
        found.one, found.fifty = alone, fifty
    finally:
        for folder in folders:
            subprocess.run([RUNTIME, "--root", f"{base}/state", "delete", "-f", name(folder)], stderr=subprocess.DEVNULL)
