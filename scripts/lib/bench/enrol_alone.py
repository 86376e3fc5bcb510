"""Boards that enrol with claim tokens, all at once: half of them approved by the bridge, half with kubectl. How long it takes
until all have certificates, and what it costs the bridge that is their API.
"""
import json
import os
import resource
import socket
import subprocess
import threading
import time

import boards
from common import BRIDGE, REPO, WORK, free_port, row, wait
from meters import cpu, pss
from news import tell, until

# Boards of each of the two claim tokens.
BOARDS = int(os.environ.get("BENCH_BOARDS", "500"))
# Boards behind one address. The bridge takes 10 new ones a minute from each: half of them have to ask again.
BEHIND = 20
# Written by `cargo build --profile fast -p sampan-scale`; ./scripts/bench does it.
PROGRAM = os.environ.get("SAMPAN_BOARDS", f"{REPO}/target/fast/boards")
STATE = f"{WORK}/enrol"
# Seconds until all boards have their certificates, and of rest before they begin.
LIMIT, REST = 300, 15
# Requests in one command of kubectl.
AT_ONCE = 50
# Seconds between two looks at the bridge's memory.
LOOK = 0.5


class Site:
    """A bridge with its API, and claim tokens."""

    def __init__(self):
        self.log = open(f"{WORK}/enrol.log", "ab")
        self.link, self.api = free_port(), free_port()
        self.bridge = None

    def start(self):
        # A board has three connections: its own, and both ends of the one from its address. The bridge has the last of them.
        needed, hard = 2 * BOARDS * 3 + 500, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard < needed:
            raise SystemExit(f"bench: {2 * BOARDS} boards need {needed} descriptors, and this host gives {hard} (ulimit -Hn)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.bridge = subprocess.Popen([
            BRIDGE, "standalone", "--state", STATE, "--listen", f"127.0.0.1:{self.link}", "--api-listen", f"127.0.0.1:{self.api}",
        ], stdout=self.log, stderr=self.log)
        wait(20, "the bridge listens", lambda: os.path.exists(f"{STATE}/kubeconfig") and self.listens())

    def listens(self):
        with socket.socket() as s:
            return not s.connect_ex(("127.0.0.1", self.api))

    def claim(self, approve):
        """Makes a claim token; what `cloud-bridge token claim` says of it."""
        command = [
            BRIDGE, "token", "claim", "--state", STATE, "--name", f"{approve}-{{serial}}", "--uses", str(BOARDS), "--approve", approve,
            "--bridge", f"https://127.0.0.1:{self.link}", "--output", "json",
        ]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=self.log, text=True).stdout)

    def stop(self):
        if self.bridge:
            self.bridge.kill()
            self.bridge.wait()


class Person:
    """Approves each request with a claim token when kubectl shows it."""

    def __init__(self, claim, log):
        self.kubectl = ["kubectl", "--kubeconfig", f"{STATE}/kubeconfig", "--cache-dir", f"{WORK}/kubectl"]
        self.requests, self.log = boards.Requests(), log
        words = ["get", "csr", "--watch", "-o", "name", "-l", f"sampan.dev/claim-token={claim}"]
        self.watch = subprocess.Popen([*self.kubectl, *words], stdout=subprocess.PIPE, stderr=log, text=True)
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        for line in self.watch.stdout:
            self.requests.shown(line)
            tell()

    def approve(self):
        while names := self.requests.take(AT_ONCE):
            subprocess.run([*self.kubectl, "certificate", "approve", *names], check=True, stdout=self.log, stderr=self.log)

    def stop(self):
        self.watch.kill()
        self.watch.wait()


def measure():
    site = Site()
    try:
        site.start()
        time.sleep(REST)
        auto, manual = site.claim("auto"), site.claim("manual")
        person = Person(manual["name"], site.log)
        try:
            enrol(site, person, [auto["token"], manual["token"]])
        finally:
            person.stop()
    finally:
        site.stop()


def enrol(site, person, tokens):
    before, used = pss([site.bridge.pid]), cpu([site.bridge.pid])
    command = [PROGRAM, "--link", f"127.0.0.1:{site.link}", "--boards", str(BOARDS), "--behind", str(BEHIND), "--patience", str(LIMIT)]
    for token in tokens:
        command += ["--token", token]
    most = before
    with open(f"{WORK}/boards", "w+") as out:
        simulated = subprocess.Popen(command, stdout=out, stderr=site.log)
        try:
            while simulated.poll() is None:
                until(LOOK, lambda: person.requests.new or simulated.poll() is not None)
                person.approve()
                most = max(most, pss([site.bridge.pid]))
        finally:
            simulated.kill()
            simulated.wait()
        used = cpu([site.bridge.pid]) - used
        out.seek(0)
        text = out.read()
    tell_of(boards.outcomes(text, len(tokens)), most - before, used)


def tell_of(found, memory, used):
    """`memory` in MB and `used` in CPU seconds are the bridge's, for all boards."""
    if why := boards.failures(found):
        raise SystemExit(f"bench: boards without a certificate: {why}")
    total = sum(outcome["boards"] for outcome in found)
    what = f"{total:,} boards enrol at once"
    row(f"{what}: all have certificates", max(outcome["worst"] for outcome in found), "s", LIMIT)
    for who, outcome in zip(("approved by the bridge", "approved with kubectl"), found):
        row(f"{what}: {who}, p50", outcome["p50"], "s")
        row(f"{what}: {who}, p99", outcome["p99"], "s")
    row(f"{what}: requests of a board", sum(outcome["asks"] for outcome in found) / total, "")
    row(f"{what}: bridge, most PSS above idle", memory, "MB", 30)
    row(f"{what}: bridge, CPU for each board", used / total * 1e3, "ms", 5)
