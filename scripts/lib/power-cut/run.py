#!/usr/bin/env python3
"""Cuts the power of an emulated machine amid its work, again and again, and looks at what comes back each time.
Started by scripts/power-cut, which makes the machine."""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time

from board import Api, Board, Died, until
from load import NAMESPACE, Load

STATE = "/var/lib/edge-runtime"
# How often a machine may hang in one boot before that counts.
HANGS = 2


def say(text):
    print(f"    {text}", flush=True)


def ready(api):
    try:
        return api.ask("GET", NAMESPACE, seconds=5)[0] == 200
    except OSError:
        return False


def node_ready(api):
    try:
        code, node = api.ask("GET", "/api/v1/nodes/board", seconds=20)
    except OSError:
        return False
    conditions = node.get("status", {}).get("conditions", []) if code == 200 else []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def settled(api):
    """Every pod has got as far as it gets."""
    code, pods = api.get(f"{NAMESPACE}/pods")
    good = {"Running", "Succeeded", "Failed"}
    return code == 200 and all(
        p["status"].get("phase") in good and not p["metadata"].get("deletionTimestamp") for p in pods["items"]
    )


def first_boot(board, options):
    """A bridge, a node that belongs to it, and the images."""
    board.power_on(0)
    def kubeconfig():
        code, text = board.run("cat /var/lib/cloud-bridge/kubeconfig")
        return code == 0 and text

    kubeconfig = until(120, "the kubeconfig", kubeconfig)
    api = Api(kubeconfig, options.port, options.work)
    until(60, "the API", lambda: ready(api))
    token = board.must("cloud-bridge token create board --state /var/lib/cloud-bridge").split()[0]
    board.must(f"edge-runtime join --bridge https://10.0.2.15:7443 --token {token} --node board")
    board.must("edge-runtime import /root/busybox.tar && mkdir -p /var/jobs")
    until(120, "the node", lambda: node_ready(api))
    board.must("sync")
    return api


def file_system(board, number, options):
    """After every other cut the file system is looked at from outside, as a boot with fsck does; else the kernel replays
    its journal."""
    if number % 2:
        return []
    done = subprocess.run(["e2fsck", "-f", "-p", options.disk], capture_output=True, text=True)
    return [] if done.returncode <= 1 else [f"e2fsck: {done.returncode}: {done.stdout[-1000:]}"]


def check(board, api, load):
    """What must be so once the board is up again."""
    wrong = load.maps.check(api)
    until(240, "the pods", lambda: settled(api))
    wrong += load.jobs.check(api, board)
    wrong += load.pods.check(api)
    _, errors = board.run("dmesg | grep -E 'EXT4-fs (error|warning)'")
    _, damaged = board.run(f"ls -d /var/lib/cloud-bridge/api.db.damaged* {STATE}/store.db.* 2>/dev/null | grep -v -e -wal -e -shm -e -lock -e copy -e bak")
    _, told = board.run("grep -hE 'damaged|malformed|set aside|panicked' /var/log/bridge.log /var/log/node.log")
    wrong += [line for line in (errors + "\n" + damaged + "\n" + told).splitlines() if line]
    return wrong


def leftovers(board, api):
    """With every pod deleted and the images collected, nothing of pods, pulls and imports is left."""
    wrong = []
    _, pods = api.get(f"{NAMESPACE}/pods")
    for pod in pods["items"]:
        api.ask("DELETE", f"{NAMESPACE}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0")
    until(180, "the pods' end", lambda: not api.get(f"{NAMESPACE}/pods")[1]["items"])
    board.must("edge-runtime images --collect shortest")
    for folder in (f"{STATE}/pods", f"{STATE}/trash", f"{STATE}/exits", "/var/log/pods"):
        try:
            until(60, folder, lambda: not board.run(f"ls -A {folder}")[1].strip() or not board.run(f"test -d {folder}")[0] == 0)
        except Died:
            wrong.append(f"left in {folder}: {board.run(f'ls -A {folder}')[1][:300]}")
    half_made = board.run(f"ls -A {STATE}/incoming | grep -v ^lock")[1].strip()
    if half_made:
        wrong.append(f"left in incoming: {half_made[:300]}")
    images = json.loads(board.must("edge-runtime images --json") or "[]")
    needed = {layer.split(":")[-1] for image in images for layer in (image.get("layers") or [])}
    # Records of images lie beside the layers.
    names = [name for name in board.must(f"ls {STATE}/layers").split() if not name.endswith(".image")]
    there = {name.split(".")[0] for name in names}
    if needed and not needed <= there:
        wrong.append(f"layers that images name are missing: {sorted(needed - there)}")
    if needed and there - needed:
        wrong.append(f"layers that no image names: {sorted(there - needed)}")
    verdict = board.must("edge-runtime images --verify", 300)
    if "whole" not in verdict:
        wrong.append(verdict)
    return wrong


def boot(board, api, seed):
    """The power comes back, and bridge and node with it. A machine that hangs by itself is cut once more; returns how often
    that was so."""
    for hung in range(HANGS + 1):
        api.forget()
        try:
            board.power_on(seed)
            until(120, "the API", lambda: ready(api))
            until(120, "the node", lambda: node_ready(api))
            return hung
        except Died:
            if hung == HANGS or not board.stuck():
                raise
            say("the machine's own kernel hangs: its power is cut again")
            board.power_off()


def main():
    parser = argparse.ArgumentParser()
    for name in ("work", "disk", "qemu", "kernel", "initramfs"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--libraries", default="")
    parser.add_argument("--data", default="")
    parser.add_argument("--images", default="")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cuts", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    # Whoever ends this ends the machine, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    board = Board(options)
    began = time.monotonic()
    failures, hung = [], 0
    load = Load(options.images.split())
    try:
        api = first_boot(board, options)
        say(f"a node on its own bridge, after {time.monotonic() - began:.0f} s")
        for number in range(1, options.cuts + 1):
            chance = random.Random(f"{options.seed}/{number}")
            seconds = chance.uniform(4, 25)
            acknowledged = load.maps.acknowledged
            lost, problems = load.run(board, api, seconds, f"{options.seed}/{number}", chance.random() < 0.75)
            wrong = problems + file_system(board, number, options)
            off = time.monotonic()
            hung += boot(board, api, f"{options.seed}/{number}")
            up = time.monotonic() - off
            wrong += check(board, api, load)
            # Every few cuts, and after the last: what is left over shows only when all is put away.
            if number % 5 == 0 or number == options.cuts:
                wrong += leftovers(board, api)
                load.jobs.told.clear()
                load.jobs.waiting.clear()
                load.pods.living.clear()
                load.pods.gone.clear()
                board.must("edge-runtime import /root/busybox.tar")
            say(f"cut {number} after {seconds:.1f} s: {load.maps.acknowledged - acknowledged} writes, {len(load.jobs.told)} jobs told, "
                f"cache {json.dumps(lost)}, up after {up:.0f} s: {'; '.join(wrong) or 'all there'}")
            failures += [f"cut {number}: {one}" for one in wrong]
    except (Died, AssertionError, OSError) as error:
        failures.append(repr(error))
        if board.qemu:
            say(f"the last of the serial log: {subprocess.run(['tail', '-n', '20', board.serial], capture_output=True, text=True).stdout}")
            try:
                say(board.run("tail -n 30 /var/log/bridge.log /var/log/node.log; ps", 20)[1])
            except Died as silent:
                say(str(silent))
    finally:
        board.end()
    took = time.monotonic() - began
    summary = {
        "name": "power cuts", "seed": options.seed, "cuts": options.cuts, "seconds": round(took), "failures": len(failures),
        "acknowledged_writes": load.maps.acknowledged, "jobs": load.jobs.next, "image_commands": load.commands, "hung": hung,
    }
    print(json.dumps(summary))
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
