"""A bridge beside a cluster, built without the API of its own: its size and its memory."""
import os
import subprocess
import time

from common import BRIDGE, REPO, WORK, free_port, row, wait
from meters import pss

# ./scripts/bench builds it.
PROGRAM = os.environ.get("SAMPAN_SERVE", f"{REPO}/target/serve/bridge/cloud-bridge")
# What it was before there was an API of its own with controllers of workloads: that costs nothing where it is not.
SIZE, MEMORY = None, None
REST = 15


def measure():
    row("bridge without an API of its own: binary", os.path.getsize(PROGRAM) / 1e6, "MB", SIZE)
    log, state = open(f"{WORK}/serve.log", "ab"), f"{WORK}/cluster"
    port = free_port()
    programs = [subprocess.Popen([BRIDGE, "standalone", "--state", state, "--listen", f"127.0.0.1:{free_port()}", "--api-listen", f"127.0.0.1:{port}"], stdout=log, stderr=log)]
    try:
        wait(20, "the kubeconfig is there", lambda: os.path.exists(f"{state}/kubeconfig"))
        programs.append(subprocess.Popen([PROGRAM, "serve", "--kubeconfig", f"{state}/kubeconfig", "--listen", f"127.0.0.1:{free_port()}"], stdout=log, stderr=log))
        time.sleep(REST)
        if programs[1].poll() is not None:
            raise SystemExit(f"bench: the bridge ended: {open(log.name).read()[-500:]}")
        row("bridge without an API of its own: PSS, idle", pss([programs[1].pid]), "MB", MEMORY)
    finally:
        for program in reversed(programs):
            program.kill()
            program.wait()
