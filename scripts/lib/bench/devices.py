"""What devices cost, and how long a value takes in each direction; mosquitto is the broker, between two sockets."""
import glob
import json
import os
import subprocess
import threading
import time

from common import REPO, WORK, free_port, row, wait
from connected import percentile
from meters import cpu, pss, written
from mqtt import Client
from node import ROOT

GROUP = "/apis/devices.kubeedge.io/v1beta1/namespaces/default"
TIMES, MANY, SECONDS = 50, 1000, int(os.environ.get("BENCH_DEVICES_SECONDS", "30"))
# One device is told of once a second.
PAUSE = 1.2


def helper():
    for entry in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(entry).read().split("\0")
        except OSError:
            continue
        if words[0].endswith("edge-devices") and any(word.startswith(ROOT) for word in words):
            return int(entry.split("/")[2])
    return None


def device(name, led):
    properties = [{"name": "temp"}, {"name": "led", "desired": {"value": led}}]
    spec = {"deviceModelRef": {"name": "lab"}, "nodeName": "edge-1", "properties": properties}
    return {"apiVersion": "devices.kubeedge.io/v1beta1", "kind": "Device", "metadata": {"name": name}, "spec": spec}


def topic(name):
    return f"$hw/events/device/default/{name}/twin/update"


def value(number):
    return json.dumps({"event_id": "", "timestamp": 0, "twin": {"temp": {"actual": {"value": str(number)}}}})


class Statuses:
    """When which value was first shown, by a watch."""

    def __init__(self, api):
        self.seen, self.last = {}, {}
        version = api.call("GET", f"{GROUP}/devicestatuses?limit=1")["metadata"]["resourceVersion"]
        connection = api.connect()
        connection.request("GET", f"{GROUP}/devicestatuses?watch=1&resourceVersion={version}", headers={"Accept": "application/json"})
        answer = connection.getresponse()

        def follow():
            while line := answer.readline():
                now, found = time.monotonic(), json.loads(line)["object"]
                for twin in found.get("status", {}).get("twins", []):
                    if twin["propertyName"] == "temp":
                        name = found["metadata"]["name"]
                        self.last[name] = twin["reported"]["value"]
                        self.seen.setdefault((name, self.last[name]), now)

        threading.Thread(target=follow, daemon=True).start()


def up(client, statuses):
    took = []
    for number in range(TIMES):
        began = time.monotonic()
        client.publish(topic("one"), value(number))
        at = wait(10, "the value is shown", lambda: statuses.seen.get(("one", str(number))))
        took.append(at - began)
        time.sleep(PAUSE)
    row("a value on MQTT to DeviceStatus in the API, p50", percentile(took, 50), "s", 0.05)
    row("a value on MQTT to DeviceStatus in the API, p99", percentile(took, 99), "s", 0.3)


def down(node, client):
    took = []
    for number in range(TIMES):
        body = node.api.call("GET", f"{GROUP}/devices/one")
        body["spec"]["properties"][1]["desired"]["value"] = f"wish-{number}"
        began = time.monotonic()
        node.api.call("PUT", f"{GROUP}/devices/one", body)
        is_it = lambda heard: heard[1].endswith("/delta") and heard[2]["delta"].get("led") == f"wish-{number}"
        took.append(wait(10, "the wish is heard", lambda: next((heard[0] for heard in client.heard if is_it(heard)), None)) - began)
        time.sleep(PAUSE)
    row("a desired value in the API to the delta on MQTT, p50", percentile(took, 50), "s")
    row("a desired value in the API to the delta on MQTT, p99", percentile(took, 99), "s", 0.3)


def flood(node, client, statuses, pid):
    for number in range(MANY):
        node.api.call("POST", f"{GROUP}/devices", device(f"d{number}", "ON"))
    time.sleep(5)
    row(f"helper, {MANY} devices that are silent: PSS", pss([pid]), "MB")
    pids, before, wrote, began = [node.edge.pid], cpu([pid]), written([node.edge.pid]), time.monotonic()
    daemon = cpu(pids)
    for turn in range(SECONDS):
        for part in range(10):
            names = range(part * MANY // 10, (part + 1) * MANY // 10)
            client.socket.sendall(b"".join(client.packed(topic(f"d{n}"), value(turn * MANY + n)) for n in names))
            time.sleep(max(0, began + turn + (part + 1) / 10 - time.monotonic()))
    spent = time.monotonic() - began
    row(f"helper, {MANY} devices at 1 report a second: PSS", pss([pid]), "MB", 2.5)
    row("the same over MQTT: CPU of one core", (cpu([pid]) - before) / spent * 100, "%", 3)
    row("the daemon beside it: CPU of one core", (cpu(pids) - daemon) / spent * 100, "%")
    row("the daemon beside it: written to the disk", (written([node.edge.pid]) - wrote) / 1e6, "MB")
    last = {f"d{n}": str((SECONDS - 1) * MANY + n) for n in range(MANY)}
    ended = time.monotonic()
    wait(MANY / 10 + 60, "every last value is shown", lambda: all(statuses.last.get(name) == text for name, text in last.items()))
    row(f"end of that flood to every last value in the API, {MANY} devices", time.monotonic() - ended, "s", MANY / 10 + 5)


def measure(node, _bare):
    port = free_port()
    with open(f"{WORK}/mosquitto.conf", "w") as config:
        config.write(f"listener {port} 127.0.0.1\nallow_anonymous true\nlog_type error\n")
    broker = subprocess.Popen(["mosquitto", "-c", f"{WORK}/mosquitto.conf"], stdout=node.log, stderr=node.log)
    try:
        node.run(*node.kubectl("apply", "-f", f"{REPO}/cloud-bridge/deploy/devices/crds.yaml"))
        node.run(*node.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/devicestatuses.devices.kubeedge.io"))
        off = pss(node.pids())
        node.restart_edge(f"device-twin: {{mqtt: {{broker: 'tcp://127.0.0.1:{port}'}}}}\n")
        wait(60, "the node is Ready again", node.is_ready)
        pid = wait(10, "the helper runs", helper)
        time.sleep(10)
        print(f"    daemon and monitor off {off:.2f}, on {pss(node.pids()):.2f} MB", flush=True)
        row("helper for devices, idle: PSS", pss([pid]), "MB", 1.5)
        properties = [{"name": "temp", "type": "INT", "accessMode": "ReadOnly"}, {"name": "led", "type": "STRING", "accessMode": "ReadWrite"}]
        node.api.call("POST", f"{GROUP}/devicemodels", {"apiVersion": "devices.kubeedge.io/v1beta1", "kind": "DeviceModel", "metadata": {"name": "lab"}, "spec": {"properties": properties}})
        client = Client(port, "bench")
        client.listen("$hw/events/device/default/one/twin/update/delta")
        sender, statuses = Client(port, "sender"), Statuses(node.api)
        node.api.call("POST", f"{GROUP}/devices", device("one", "ON"))
        wait(10, "the device is known", lambda: client.heard)
        time.sleep(2)
        up(sender, statuses)
        down(node, client)
        flood(node, sender, statuses, pid)
    finally:
        broker.kill()
        broker.wait()
    node.restart_edge()
