#!/usr/bin/env python3
"""Cuts the power of an emulated machine amid an upgrade of its programs, again and again, and kills what takes part in one.
Started by scripts/power-cut --upgrade, which makes the machine."""

import json
import random
import sys
import time

import versions
from board import Board, Died, until
from life import NAMESPACE, arguments, boot, file_system, first_boot, last_words, say
from load import pod
from versions import FOLDER, TRIAL, Upgrade

PODS = 5
# What comes, how far it is let come, and how many seconds from then at most until the power goes.
MOMENTS = [
    ("good", "coming", 2.0), ("good", "switch", 0.5), ("good", "trial", 1.5), ("config", "trial", 0.3), ("good", "trial", TRIAL),
    ("good", "end", 0.5), ("back", "trial", 3.0), ("crashes", "trial", 6.0), ("good", "coming", 2.0), ("config", "end", 0.5),
    ("hangs", "end", 1.0), ("good", "end", 2.0), ("back", "end", 1.0), ("good", "switch", 0.5), ("config", "trial", 6.0),
]
VICTIMS = ("daemon", "command", "watcher", "all")


def wait_pods(board, api):
    """Every pod runs, as the API says, and as the processes of this boot do."""
    def run():
        _, pods = api.get(f"{NAMESPACE}/pods")
        ready = [p for p in pods["items"] if any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", []))]
        return len(ready) == PODS and len(versions.containers(board)) == PODS

    # Five OCI runtimes at once, on processors that are emulated and shared.
    until(300, "the pods", run)


class Run:
    def __init__(self, board, api, options):
        self.board, self.api, self.options = board, api, options
        self.next, self.outcomes, self.phases = 0, {}, {}

    def begin(self, kind):
        """A bundle that is not in force; back goes only where there is one before."""
        now = versions.state(self.board)
        current, last = now.get("current"), now.get("last") or {}
        if kind == "back" and not (last.get("good") and last.get("version") == current and last.get("from")):
            # The package's version needs no trial.
            kind = "good"
        if kind == "good":
            self.next += 1
            number = f"0.1.{1 + self.next % 2}"
            if (current or "").startswith(number):
                number = f"0.1.{1 + (self.next + 1) % 2}"
            return Upgrade(self.board, kind, f"/root/{number}.tar")
        if kind == "config":
            self.next += 1
            return Upgrade(self.board, kind, self.next)
        return Upgrade(self.board, kind, "--back" if kind == "back" else f"/root/{kind}.tar")

    def whole(self):
        """An upgrade that nobody disturbs stays, touches no pod, and leaves nothing over of others."""
        pods = versions.containers(self.board)
        upgrade = self.begin("good")
        code = upgrade.wait()
        after = versions.state(self.board)
        wrong = [] if code == 0 and after["last"]["good"] else [f"an upgrade afterwards: {code}: {upgrade.said()}"]
        kept = {after.get("current"), after["last"].get("from")} - {None}
        there = set(self.board.must(f"ls -A {FOLDER}").split())
        if more := there - kept - {"state.json", "lock", "config.before.yaml", "arriving.lock"}:
            wrong.append(f"left in {FOLDER}: {sorted(more)}")
        if versions.containers(self.board) != pods:
            wrong.append("pods were touched by an upgrade")
        return wrong + versions.check(self.board, self.api)

    def cut(self, number):
        chance = random.Random(f"{self.options.seed}/{number}")
        kind, phase, most = MOMENTS[(number - 1) % len(MOMENTS)]
        seconds, at_flush = chance.uniform(0, most), chance.random() < 0.6
        began = time.monotonic()
        upgrade = self.begin(kind)
        found = upgrade.follow(phase, seconds)
        upgrade.cut()
        if at_flush:
            self.board.stop_disk()
        seen = time.monotonic()
        lost = self.board.power_off()
        wrong = file_system(self.board, number, self.options)
        hung = boot(self.board, self.api, f"{self.options.seed}/{number}")
        up = time.monotonic() - seen
        wait_pods(self.board, self.api)
        after = versions.state(self.board)
        wrong += upgrade.wrong(after) + versions.check(self.board, self.api)
        outcome = upgrade.became(after)
        self.count(found, outcome)
        say(f"cut {number}: {kind} {found} +{seconds:.1f} s{' at a flush' if at_flush else ''}, {json.dumps(lost)}, up after {up:.0f} s, all in {time.monotonic() - began:.0f} s: "
            f"{'; '.join(wrong) or outcome}")
        return wrong, hung

    def kill(self, number):
        """The same with SIGKILL: the version before or the next one runs, and no container has ended for it."""
        chance = random.Random(f"{self.options.seed}/kill/{number}")
        pods, victim = versions.containers(self.board), VICTIMS[number % len(VICTIMS)]
        upgrade = self.begin("good")
        found = upgrade.follow("coming", chance.uniform(0, TRIAL + 3))
        daemon, command = "$(sed 's/[^0-9]*\\([0-9]*\\).*/\\1/' /run/edge-runtime.launcher/main.json)", "$(pidof edge-admin)"
        watcher = "$(pgrep -f watch-trial)"
        # One that watches comes back with the next start of the daemon.
        pids = {"daemon": daemon, "command": command, "watcher": f"{watcher} {daemon}", "all": f"{command} {watcher} {daemon}"}[victim]
        self.board.run(f"kill -9 {pids} 2>/dev/null")
        until(150, "the end of the trial", lambda: not versions.state(self.board).get("trial") and not self.board.must("pidof edge-admin || true").strip())
        wait_pods(self.board, self.api)
        after = versions.state(self.board)
        wrong = upgrade.wrong(after) + versions.check(self.board, self.api)
        if versions.containers(self.board) != pods:
            wrong.append("pods were touched")
        say(f"kill {number}: {victim} in {found}: {'; '.join(wrong) or upgrade.became(after)}")
        return wrong

    def count(self, phase, outcome):
        self.phases[phase] = self.phases.get(phase, 0) + 1
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


def main():
    options = arguments(__doc__)
    board = Board(options)
    began = time.monotonic()
    failures, hung, kills, run, number = [], 0, 0, None, 0
    try:
        api = first_boot(board, options, f"upgrade: {{trial-seconds: {TRIAL}}}")
        for one in range(PODS):
            code, answer = api.ask("POST", f"{NAMESPACE}/pods", pod(f"pod-{one}", ["sleep", "100000"], "Always"))
            assert code == 201, answer
        wait_pods(board, api)
        say(f"a node with {PODS} pods, after {time.monotonic() - began:.0f} s")
        run = Run(board, api, options)
        failures += run.whole()
        for number in range(1, options.cuts + 1):
            wrong, more = run.cut(number)
            hung += more
            if number % 4 == 0:
                wrong += run.kill(number // 4)
                kills += 1
            # Every few cuts, and after the last.
            if number % 8 == 0 or number == options.cuts:
                wrong += run.whole()
            failures += [f"cut {number}: {one}" for one in wrong]
    except (Died, AssertionError, OSError, ValueError, KeyError) as error:
        failures.append(f"after cut {number}: {error!r}")
        last_words(board)
    finally:
        board.end()
    took = time.monotonic() - began
    summary = {
        "name": "power cuts of an upgrade", "seed": options.seed, "cuts": options.cuts, "kills": kills, "seconds": round(took),
        "failures": len(failures), "phases": run.phases if run else {}, "outcomes": run.outcomes if run else {}, "hung": hung,
    }
    print(json.dumps(summary))
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
