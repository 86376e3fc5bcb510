"""Versions of the programs on the machine: an upgrade under way, and what must hold of the versions after anything."""

import base64
import json
import re
import time

from board import Died, until

FOLDER = "/var/lib/edge-runtime/versions"
CONFIG = "/etc/edge-runtime/config.yaml"
PACKAGED = "/usr/lib/edge-runtime"
TRIAL = 10
# What a trial that did not prove anything says.
REASONS = ("started anew", "ended 3 times", "not ready", "the trial cannot be remembered")
# Of state.json, after which it counts as told: what is read may not be on the medium yet.
TOLD = 1.0


def state(board):
    """What stands in state.json; nothing where nobody has ever upgraded."""
    code, text = board.run(f"cat {FOLDER}/state.json")
    return json.loads(text) if code == 0 else {}


def processes(board):
    """(pid, command line, program) of every process on the board; one that ends meanwhile is left out."""
    text = board.must("{ for p in /proc/[0-9]*; do echo \"${p#/proc/}|$(tr '\\0' ' ' <$p/cmdline)|$(readlink $p/exe)\"; done; } 2>/dev/null")
    found = [line.split("|") for line in text.splitlines()]
    return [(each[0], each[1].strip(), each[-1]) for each in found if len(each) >= 3 and each[-1]]


def daemons(board):
    """The program of every process that is a daemon."""
    return [program for _, line, program in processes(board) if line.split()[:2] == ["edge-runtime", "run"]]


def containers(board):
    """The processes that an upgrade leaves alone."""
    return [pid for pid, line, _ in processes(board) if line == "sleep 100000"]


def order(number):
    """What a ConfigUpdateJob asks of a node."""
    job = {"kind": "ConfigUpdateJob", "name": f"config-{number}", "uid": f"config-{number}"}
    return json.dumps({"job": job, "timeoutSeconds": 300, "work": {"configure": {"fields": {"labels.cut": f"'{number}'"}}}})


class Upgrade:
    """One of a bundle, or back by hand, or of the configuration, as the board does it in the background."""

    def __init__(self, board, kind, what):
        self.board, self.kind, self.what = board, kind, what
        self.config = board.must(f"cat {CONFIG}")
        self.before = state(board)
        self.began = time.monotonic()
        # When what is last seen of the state was seen first.
        self.seen, self.seen_at, self.trial_at = self.before, self.began, None
        self.arrived, self.told = False, None
        command = f"edge-runtime upgrade {what} --trial {TRIAL}"
        if kind == "config":
            command = f"(echo {base64.b64encode(order(what).encode()).decode()} | base64 -d | {PACKAGED}/edge-admin order)"
        board.must(f"({command} >/var/log/upgrade.log 2>&1; echo $? >>/var/log/upgrade.log) </dev/null 3>&- & echo $! >/run/upgrade.pid")

    def look(self):
        """How far it is: coming, switch (it is here), trial, or end."""
        _, text = self.board.run(f"cat {FOLDER}/state.json 2>/dev/null; echo; [ ! -d {FOLDER}/arriving ] || echo arriving")
        first, *rest = text.splitlines() or [""]
        seen = json.loads(first) if first else {}
        if seen != self.seen:
            self.seen, self.seen_at = seen, time.monotonic()
        here = bool(rest and "arriving" in rest[-1])
        self.arrived |= here
        if seen.get("trial"):
            self.trial_at = self.trial_at or time.monotonic()
            return "trial"
        if self.trial_at or seen.get("last") != self.before.get("last"):
            return "end"
        return "switch" if self.arrived and not here else "coming"

    def follow(self, phase, seconds):
        """Until it is so far, and these seconds more; how far it is then."""
        order = ["coming", "switch", "trial", "end"]
        limit = time.monotonic() + 90
        while order.index(found := self.look()) < order.index(phase):
            if time.monotonic() > limit:
                raise Died(f"the upgrade does not come to {phase}: {self.said()}")
        until_then = time.monotonic() + seconds
        while (left := until_then - time.monotonic()) > 0:
            time.sleep(min(0.15, left))
            found = self.look()
        return found

    def said(self):
        return self.board.run("cat /var/log/upgrade.log")[1]

    def wait(self):
        """The end of its trial; exit code of the command."""
        def ended():
            words = self.said().split()
            return words[-1] if words and words[-1].isdigit() else None

        return int(until(150, "the end of the upgrade", ended))

    def cut(self):
        """Now it is; what was seen for a while was told to whoever asked, and has to be so."""
        self.told = self.seen if self.seen != self.before and time.monotonic() - self.seen_at > TOLD else None

    def wrong(self, after):
        wrong = self.state_wrong(after)
        config, last = self.board.must(f"cat {CONFIG}"), after.get("last") or {}
        stays = self.kind == "config" and last.get("good") and last != (self.before.get("last") or {})
        if stays != (config != self.config) or (stays and not re.search(rf"cut: [\"']?{self.what}\b", config)):
            wrong.append(f"the configuration is {config!r}, and was {self.config!r}")
        return wrong

    def state_wrong(self, after):
        """What is wrong with a state after it was cut anywhere."""
        old, last = self.before.get("current"), after.get("last") or {}
        if after.get("trial"):
            return [f"a trial outlived the boot: {after}"]
        if self.told and not self.told.get("trial") and after != self.told:
            return [f"{after}, and told was {self.told}"]
        if last == (self.before.get("last") or {}) and after.get("current") == old:
            return [f"as before, and told was {self.told}"] if self.told else []
        if last.get("good"):
            # The version before is there to go back to.
            good = self.kind in ("good", "back", "config") and after.get("current") == last.get("version") and last.get("from") == old
            return [] if good else [f"{after} after {self.before}"]
        if after.get("current") != old or not any(reason in last.get("reason", "") for reason in REASONS):
            return [f"not the old version: {after} after {self.before}"]
        return []

    def became(self, after):
        """The same for a person."""
        last = after.get("last") or {}
        if last == (self.before.get("last") or {}):
            return "as before"
        return "stayed" if last.get("good") else last.get("reason", "")[:40]


def check(board, api):
    """Exactly one version runs, the one in force, and the Node says so and what became of the last one."""
    now = state(board)
    folder = f"{FOLDER}/{now['current']}" if now.get("current") else PACKAGED
    running = daemons(board)
    wrong = []
    if running != [f"{folder}/edge-runtime"]:
        wrong.append(f"{running} run, in force is {folder}")
    number = now.get("current", "0.1.0").split("-")[0]
    boot = board.must("cat /proc/sys/kernel/random/boot_id").strip()

    def told():
        _, node = api.get("/api/v1/nodes/board")
        status = node.get("status", {})
        conditions = {one["type"]: one for one in status.get("conditions", [])}
        info = status.get("nodeInfo", {})
        said = conditions.get("Upgraded", {}).get("message", "")
        last = now.get("last") or {}
        return (
            conditions.get("Ready", {}).get("status") == "True"
            and info.get("bootID") == boot
            and info.get("kubeletVersion", "").endswith(f"-sampan-{number}")
            and (not last.get("reason") or last["reason"] in said)
        )

    try:
        until(120, "the Node", told)
    except Died:
        wrong.append(f"the Node does not say that {number} is ready and {now.get('last')}: {json.dumps(api.get('/api/v1/nodes/board')[1].get('status'))[:1500]}")
    return wrong
