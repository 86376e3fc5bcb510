#!/usr/bin/env python3
"""Cuts the power of an emulated machine amid its work, again and again, and looks at what comes back each time.
Started by scripts/power-cut, which makes the machine."""

import json
import random
import sys
import time

from board import Board, Died, until
from life import NAMESPACE, arguments, boot, file_system, first_boot, last_words, say, settled
from load import Load

STATE = "/var/lib/edge-runtime"


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
    board.must("edge-runtime collect shortest")
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


def main():
    options = arguments(__doc__)
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
        last_words(board)
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
