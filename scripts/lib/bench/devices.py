"""What devices cost, and how long a value takes in each direction; mosquitto is the broker, between two sockets."""
import itertools
import json
import os
import signal
import subprocess
import threading
import time

from beside import percentile
from common import EDGE, REPO, WORK, attempt, free_port, row, wait
from dmi import Connection, Mapper, report
from meters import cpu, pss, written
from mqtt import Client
from news import tell
from node import ROOT

GROUP = "/apis/devices.kubeedge.io/v1beta1/namespaces/default"
TIMES, MANY, SECONDS = 20, 1000, int(os.environ.get("BENCH_DEVICES_SECONDS", "10"))
TRACED = 5
# One device is told of once a second.
PAUSE = 1.2
# No value comes twice.
NUMBERS = itertools.count()


def device(name, led):
    properties = [{"name": "temp"}, {"name": "led", "desired": {"value": led}}]
    spec = {"deviceModelRef": {"name": "lab"}, "nodeName": "edge-1", "protocol": {"protocolName": "lab"}, "properties": properties}
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
                tell()

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


def wish(node, wanted):
    body = node.api.call("GET", f"{GROUP}/devices/one")
    body["spec"]["properties"][1]["desired"]["value"] = wanted
    began = time.monotonic()
    node.api.call("PUT", f"{GROUP}/devices/one", body)
    return began


def down(node, client):
    took = []
    for number in range(TIMES):
        began = wish(node, f"heard-{number}")
        is_it = lambda heard: heard[1].endswith("/delta") and heard[2]["delta"].get("led") == f"heard-{number}"
        took.append(wait(10, "the wish is heard", lambda: next((heard[0] for heard in client.heard if is_it(heard)), None)) - began)
        time.sleep(PAUSE)
    row("a desired value in the API to the delta on MQTT, p50", percentile(took, 50), "s")
    row("a desired value in the API to the delta on MQTT, p99", percentile(took, 99), "s", 0.3)


def flood(node, client, statuses, pid):
    for number in range(MANY):
        node.api.call("POST", f"{GROUP}/devices", device(f"d{number}", "ON"))
    time.sleep(5)
    row(f"helper, {MANY} devices that are silent: PSS", pss([pid]), "MB")
    wrote, daemon, began = written([node.edge.pid]), cpu([node.edge.pid]), time.monotonic()
    last = {}

    def say(values):
        last.update((f"d{n}", str(number)) for n, number in values)
        client.socket.sendall(b"".join(client.packed(topic(f"d{n}"), value(number)) for n, number in values))

    each_second(pid, "over MQTT", 3, say)
    took = time.monotonic() - began
    row(f"helper, {MANY} devices at 1 report a second: PSS", pss([pid]), "MB", 2.5)
    row("the daemon beside it: CPU of one core", (cpu([node.edge.pid]) - daemon) / took * 100, "%")
    row("the daemon beside it: written to the disk", (written([node.edge.pid]) - wrote) / 1e6, "MB")
    ended = time.monotonic()
    wait(MANY / 10 + 60, "every last value is shown", lambda: all(statuses.last.get(name) == text for name, text in last.items()))
    row(f"end of that flood to every last value in the API, {MANY} devices", time.monotonic() - ended, "s", MANY / 10 + 5)


def each_second(pid, way, budget, say):
    """One value of each of the devices in each second, a tenth of them at once: `say` says these of (device, value)."""
    before, spent = cpu([pid]), seconds(SECONDS, say)
    row(f"{MANY} reports a second {way}: CPU of one core", (cpu([pid]) - before) / spent * 100, "%", budget)
    # Not in the same seconds: who is watched is slow.
    tracer = subprocess.Popen(["strace", "-c", "-f", "-q", "-p", str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(1)
    seconds(TRACED, say)
    tracer.send_signal(signal.SIGINT)
    total = next(line for line in tracer.communicate()[1].splitlines() if line.endswith(" total"))
    row(f"{MANY} reports a second {way}: system calls for each", int(total.split()[3]) / TRACED / MANY, "")


def seconds(count, say):
    began = time.monotonic()
    for turn in range(count):
        for part in range(10):
            say([(n, next(NUMBERS)) for n in range(part * MANY // 10, (part + 1) * MANY // 10)])
            time.sleep(max(0, began + turn + (part + 1) / 10 - time.monotonic()))
    return time.monotonic() - began


def measure(node, _bare):
    port = free_port()
    with open(f"{WORK}/mosquitto.conf", "w") as config:
        config.write(f"listener {port} 127.0.0.1\nallow_anonymous true\nlog_type error\n")
    broker = subprocess.Popen(["mosquitto", "-c", f"{WORK}/mosquitto.conf"], stdout=node.log, stderr=node.log)
    try:
        node.run(*node.kubectl("apply", "-f", f"{REPO}/deploy/bridge/devices/crds.yaml"))
        node.run(*node.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/devicestatuses.devices.kubeedge.io"))
        properties = [{"name": "temp", "type": "INT", "accessMode": "ReadOnly"}, {"name": "led", "type": "STRING", "accessMode": "ReadWrite"}]
        node.api.call("POST", f"{GROUP}/devicemodels", {"apiVersion": "devices.kubeedge.io/v1beta1", "kind": "DeviceModel", "metadata": {"name": "lab"}, "spec": {"properties": properties}})
        statuses, listener = Statuses(node.api), free_port()
        mqtt, dmi, listen = f"mqtt: {{broker: 'tcp://127.0.0.1:{port}'}}", f"dmi: {{folder: {WORK}/dmi}}", f"listen: {{address: '127.0.0.1:{listener}'}}"
        off = pss(node.pids())
        for way in (dmi, listen, mqtt):
            pid = begin(node, way)
            row(f"helper for devices, {way.split(':')[0]}, idle: PSS", pss([pid]), "MB", 1.5)
        node.api.call("POST", f"{GROUP}/devices", device("one", "ON"))
        over_mqtt(node, statuses, port, pid)
        print(f"    daemon and monitor: without devices {off:.2f}, with {MANY} that report {pss(node.pids()):.2f} MB", flush=True)
        attempt("devices over DMI", lambda: over_dmi(node, begin(node, dmi)))
        attempt("devices at the node's own listener", lambda: over_listener(begin(node, listen), listener))
    finally:
        broker.kill()
        broker.wait()
    node.restart_edge()


def begin(node, way):
    """The helper with this way to devices, at rest."""
    node.restart_edge(f"device-twin: {{{way}}}\n")
    wait(60, "the node is Ready again", node.is_ready)
    # One with other settings ends, and another one begins.
    time.sleep(5)
    return wait(10, "the helper runs", lambda: node.program("edge-devices"))


def over_mqtt(node, statuses, port, pid):
    client = Client(port, "bench")
    client.listen("$hw/events/device/default/one/twin/update/delta")
    sender = Client(port, "sender")
    # Desired values that are not reported as reached are sent to each new client, at a limited rate.
    wait(60, "the device is known", lambda: "one" in node.run(EDGE, "devices", "--root", ROOT))
    attempt("a value on MQTT to DeviceStatus in the API", up, sender, statuses)
    attempt("a desired value in the API to the delta on MQTT", down, node, client)
    flood(node, sender, statuses, pid)


def over_dmi(node, pid):
    mapper = Mapper(f"{WORK}/dmi", "lab")
    took = []
    for number in range(TIMES):
        began = wish(node, f"called-{number}.")
        came = lambda: next((at for at, body in mapper.heard if f"called-{number}.".encode() in body), None)
        took.append(wait(10, "the mapper is called", came) - began)
        time.sleep(PAUSE / 4)
    row("a desired value in the API to the mapper's call, p50", percentile(took, 50), "s")
    row("a desired value in the API to the mapper's call, p99", percentile(took, 99), "s", 0.3)

    def each_its_own(values):
        """As KubeEdge's framework does."""
        for n, number in values:
            connection = Connection(f"{WORK}/dmi/dmi.sock")
            connection.call("ReportDeviceStatus", report(f"d{n}", str(number)))
            connection.close()

    each_second(pid, "over DMI, a connection for each", 5, each_its_own)
    kept = Connection(f"{WORK}/dmi/dmi.sock")
    each_second(pid, "over DMI, one connection", 5, lambda values: [kept.call("ReportDeviceStatus", report(f"d{n}", str(number))) for n, number in values])
    row(f"helper, {MANY} devices of a mapper that report: PSS", pss([pid]), "MB", 2.5)
    mapper.end()


def over_listener(pid, port):
    clients = [Client(port, f"bench-{n}") for n in range(40)]

    def say(values):
        for at, client in enumerate(clients):
            client.socket.sendall(b"".join(client.packed(topic(f"d{n}"), value(number)) for n, number in values[at :: len(clients)]))

    each_second(pid, f"over MQTT to the node itself, {len(clients)} clients", 3, say)
    row(f"helper, {MANY} devices at its own listener: PSS", pss([pid]), "MB", 2.5)
