"""What the board is made to do until its power goes, and what must be true after that: every object as the API last
said with 2xx, or as a request left it that was under way. Written down here, outside of the board."""

import random
import threading
import time

from board import Died
from life import NAMESPACE

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Maps:
    """ConfigMaps that are made, changed and deleted."""

    def __init__(self):
        # name -> the states that it may be in: a text of `data.v`, or None for none. One, unless a request was cut.
        self.may_be = {}
        self.next = 0
        self.acknowledged = 0
        self.newest = 0

    def step(self, api, chance):
        living = [name for name, states in self.may_be.items() if states != {None}]
        action = chance.choice(["make", "change", "change", "delete"]) if len(living) > 5 else "make"
        if action == "make":
            self.next += 1
            name, value = f"map-{self.next}", str(chance.random()) * chance.choice([1, 10, 2000])
            before = {None}
            request = ("POST", f"{NAMESPACE}/configmaps", {"metadata": {"name": name}, "data": {"v": value}})
        else:
            name = chance.choice(living)
            before = self.may_be[name]
            value = str(chance.random()) if action == "change" else None
            path = f"{NAMESPACE}/configmaps/{name}"
            request = ("DELETE", path) if value is None else ("PATCH", path, {"data": {"v": value}})
        self.may_be[name] = before | {value}
        code, answer = api.ask(*request)
        if 200 <= code < 300:
            self.may_be[name] = {value}
            self.acknowledged += 1
            version = (answer.get("metadata") or {}).get("resourceVersion")
            self.newest = max(self.newest, int(version or 0))
        elif code == 404 and None in before or code == 409 and len(before | {value}) > 1:
            pass  # It was cut before; `check` has said which it was.
        else:
            raise AssertionError(f"{request[:2]}: {code} {answer}")

    def check(self, api):
        code, answer = api.get(f"{NAMESPACE}/configmaps")
        assert code == 200, (code, answer)
        found = {item["metadata"]["name"]: item["data"]["v"] for item in answer["items"] if item["metadata"]["name"].startswith("map-")}
        wrong = [
            f"{name}: {str(found.get(name))[:30]}, not one of {[str(state)[:30] for state in states]}"
            for name, states in self.may_be.items()
            if found.get(name) not in states
        ]
        wrong += [f"{name}: nobody made it" for name in found if name not in self.may_be]
        version = int(answer["metadata"]["resourceVersion"])
        if version < self.newest:
            wrong.append(f"resourceVersion {version} after {self.newest} was shown")
        self.may_be = {name: {found.get(name)} for name in self.may_be}
        return wrong


class Jobs:
    """Pods that append the boot's id to a file of the node, sync it, and end with 0. One whose end was told of before a
    cut must not run in a boot after it; one whose end nobody knew of runs again, as on any kubelet."""

    def __init__(self):
        self.next = 0
        self.waiting = []
        # Those whose end the API told of.
        self.told = set()

    def step(self, api, _chance):
        if len(self.waiting) < 2:
            self.next += 1
            name = f"job-{self.next}"
            code, answer = api.ask("POST", f"{NAMESPACE}/pods", job(name))
            assert code in (201, 409), (code, answer)
            self.waiting.append(name)
        for name in list(self.waiting):
            code, pod = api.ask("GET", f"{NAMESPACE}/pods/{name}")
            if code == 404:
                self.waiting.remove(name)  # The cut took the request that would have made it.
            elif pod["status"].get("phase") == "Succeeded":
                self.told.add(name)
                self.waiting.remove(name)

    def check(self, api, board):
        wrong = []
        boot = board.must(f"cat {BOOT_ID}").strip()
        _, text = board.run("cd /var/jobs 2>/dev/null && for f in *; do echo $f $(cat $f); done")
        runs = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
        for name in sorted(self.told):
            code, pod = api.get(f"{NAMESPACE}/pods/{name}")
            phase = pod["status"].get("phase") if code == 200 else code
            if phase != "Succeeded":
                wrong.append(f"{name} had Succeeded and now is {phase}")
            if not runs.get(name):
                wrong.append(f"{name} had Succeeded, and what it synced is gone")
            elif boot in runs[name]:
                wrong.append(f"{name} had Succeeded, and ran again")
        return wrong


class Pods:
    """Pods that run until they are deleted."""

    def __init__(self):
        self.next = 0
        self.living = []
        self.gone = set()

    def step(self, api, chance):
        if len(self.living) < 2:
            self.next += 1
            name = f"pod-{self.next}"
            code, answer = api.ask("POST", f"{NAMESPACE}/pods", pod(name, ["sleep", "1000"], "Always"))
            assert code in (201, 409), (code, answer)
            self.living.append(name)
        elif chance.random() < 0.5:
            self.delete(api, self.living.pop(0))
        time.sleep(chance.random())

    def delete(self, api, name):
        code, answer = api.ask("DELETE", f"{NAMESPACE}/pods/{name}?gracePeriodSeconds=1")
        assert code in (200, 202, 404), (code, answer)
        self.gone.add(name)

    def check(self, api):
        """Gone is gone, or still on its way."""
        wrong = []
        for name in sorted(self.gone):
            code, found = api.get(f"{NAMESPACE}/pods/{name}")
            if code == 200 and not found["metadata"].get("deletionTimestamp"):
                wrong.append(f"{name} was deleted and is back")
            elif code == 404:
                self.gone.discard(name)
        return wrong


def pod(name, command, restart):
    container = {
        "name": "c", "image": "docker.io/library/busybox:latest", "imagePullPolicy": "IfNotPresent", "command": command,
        "volumeMounts": [{"name": "jobs", "mountPath": "/jobs"}],
    }
    volume = {"name": "jobs", "hostPath": {"path": "/var/jobs", "type": "DirectoryOrCreate"}}
    spec = {"restartPolicy": restart, "containers": [container], "volumes": [volume], "automountServiceAccountToken": False}
    return {"metadata": {"name": name}, "spec": spec}


def job(name):
    return pod(name, ["sh", "-c", f"cat {BOOT_ID} >>/jobs/{name} && sync /jobs/{name} && sync /jobs"], "OnFailure")


class Load:
    """All of it at once, in threads, until the cut; and what the board's own commands do meanwhile."""

    def __init__(self, images):
        self.maps, self.jobs, self.pods = Maps(), Jobs(), Pods()
        self.images = images
        self.commands = 0

    def run(self, board, api, seconds, seed, at_flush):
        """Until `seconds` have passed, and then the power goes, amid it all: at a flush of the disk, or at any moment.
        Returns what became of the disk's cache, and what went wrong before."""
        over = threading.Event()
        problems = []

        def work(number, step):
            chance = random.Random(f"{seed}/{number}")
            while not over.is_set():
                try:
                    step(chance)
                except (OSError, Died) as error:
                    if not over.is_set():
                        problems.append(f"before the cut: {error!r}")
                    return
                except AssertionError as error:
                    problems.append(str(error))
                    return

        steps = [
            lambda chance: self.maps.step(api, chance),
            lambda chance: self.jobs.step(api, chance),
            lambda chance: self.pods.step(api, chance),
            lambda chance: self.command(board, chance),
        ]
        threads = [threading.Thread(target=work, args=each) for each in enumerate(steps)]
        for thread in threads:
            thread.start()
        enough, patience = self.maps.acknowledged + 5, time.monotonic() + seconds + 60
        over.wait(seconds)
        # A slow host has done nothing yet that could be lost.
        while self.maps.acknowledged < enough and time.monotonic() < patience:
            over.wait(0.2)
        if at_flush:
            board.stop_disk()
        over.set()
        what = board.power_off()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "the load does not end"
        return what, problems

    def command(self, board, chance):
        """Images come and go."""
        image = chance.choice(self.images)
        command = chance.choice([
            f"edge-runtime import /root/{image}.tar",
            f"edge-runtime import /root/{image}.tar",
            f"edge-runtime images --remove example.com/{image}:latest",
            "edge-runtime collect usual",
        ])
        board.run(command)
        self.commands += 1
        time.sleep(chance.random())
