"""Clients of paho-mqtt at the listener of the helper: many at once, disconnected repeatedly, and the guarantees of a broker.

usage: clients.py PORT CLIENTS SECONDS   (devices default/d0 to default/d<CLIENTS-1> have the property `led`)
"""
import json
import random
import socket
import sys
import threading
import time

import paho.mqtt.client as mqtt

PORT, CLIENTS, SECONDS = (int(argument) for argument in sys.argv[1:])
RATE = 10
DEVICE = "$hw/events/device/default/d{}/{}"


def wait(what, done, seconds=30):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def client(name, keep_alive=30, will=None):
    made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv311, clean_session=True)
    made.reconnect_delay_set(1, 1)
    if will:
        made.will_set(will, name, qos=1)
    made.connect("127.0.0.1", PORT, keep_alive)
    return made


class Watch:
    """Subscribes to these filters during the whole test."""

    def __init__(self, name, *filters):
        self.heard, self.lock, subscribed = [], threading.Lock(), threading.Event()
        self.client = client(name)
        self.client.on_message = self.on_message
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.loop_start()
        self.client.subscribe([(one, 1) for one in filters])
        assert subscribed.wait(10), "the subscription is answered"

    def on_message(self, _client, _data, message):
        with self.lock:
            self.heard.append((message.topic, message.payload.decode(), message.retain))

    def all(self):
        with self.lock:
            return list(self.heard)


class Sender:
    """One device: sends numbers, and reconnects after each lost connection."""

    def __init__(self, number):
        self.number, self.sent, self.acked, self.connected = number, 0, 0, 0
        self.client = client(f"d{number}", keep_alive=2, will=f"lab/wills/{number}")
        self.client.on_connect, self.client.on_publish = self.on_connect, self.on_publish
        self.client.loop_start()

    def on_connect(self, sender, _data, _flags, reason, _properties):
        assert not reason.is_failure, reason
        self.connected += 1
        sender.subscribe(DEVICE.format(self.number, "twin/update/result"), 1)

    def on_publish(self, *_):
        self.acked += 1

    def send(self):
        self.sent += 1
        twin = {"event_id": str(self.sent), "twin": {"led": {"actual": {"value": str(self.sent)}}}}
        # Without a connection they wait for the next one.
        self.client.publish(f"lab/up/{self.number}", str(self.sent), qos=1)
        self.client.publish(DEVICE.format(self.number, "twin/update"), json.dumps(twin), qos=1)

    def cut(self):
        held = self.client.socket()
        if held:
            try:
                held.shutdown(socket.SHUT_RDWR)
            except OSError:
                return False
        return bool(held)


def many():
    up, wills = Watch("up", "lab/up/+"), Watch("wills", "lab/wills/#")
    senders = [Sender(number) for number in range(CLIENTS)]
    wait("all are connected", lambda: all(sender.connected for sender in senders))
    chance, cut = random.Random(7), set()
    began = time.monotonic()
    for turn in range(SECONDS * RATE):
        for sender in senders:
            sender.send()
        # Each about once in three seconds, in the middle of a packet.
        for sender in chance.sample(senders[2:], max(1, CLIENTS // (3 * RATE))):
            if sender.cut():
                cut.add(sender.number)
        time.sleep(max(0, began + (turn + 1) / RATE - time.monotonic()))
    print(f"{CLIENTS} clients for {time.monotonic() - began:.1f} s, cut: {len(cut)}, connected {sum(s.connected for s in senders)} times", flush=True)
    acknowledged = lambda: all(sender.acked >= 2 * sender.sent for sender in senders)
    wait("everything sent is acknowledged", acknowledged, 60)
    # Without further disconnects their last messages are the newest.
    for sender in senders:
        sender.send()
    wait("the last is acknowledged", acknowledged, 60)

    def seen():
        heard = {sender.number: [] for sender in senders}
        for topic, payload, retain in up.all():
            assert not retain
            heard[int(topic.rsplit("/", 1)[1])].append(int(payload))
        # A message that is repeated after a reconnect may arrive twice.
        return {number: list(dict.fromkeys(numbers)) for number, numbers in heard.items()}

    wait("all is heard", lambda: all(len(seen()[sender.number]) == sender.sent for sender in senders))
    for sender in senders:
        numbers = seen()[sender.number]
        # paho sends new messages before repeated ones, so only clients without a reconnect keep the order.
        in_order = numbers if sender.number not in cut else sorted(numbers)
        assert in_order == list(range(1, sender.sent + 1)), (sender.number, numbers)
    wait("the wills of all that were cut", lambda: cut <= {int(topic.rsplit("/", 1)[1]) for topic, _, _ in wills.all()})

    # The node has the newest value of each, too.
    twins = Watch("twins", DEVICE.format("+", "twin/get/result").replace("d+", "+"))
    for sender in senders:
        twins.client.publish(DEVICE.format(sender.number, "twin/get"), '{"event_id":""}', qos=1)
    wait("the twins of all", lambda: len(twins.all()) >= CLIENTS)
    for topic, payload, _ in twins.all():
        number = int(topic.split("/")[4][1:])
        assert json.loads(payload)["twin"]["led"]["actual"]["value"] == str(senders[number].sent), payload

    before = len(wills.all())
    for sender in senders:
        sender.client.disconnect()
        sender.client.loop_stop()
    time.sleep(0.5)
    assert len(wills.all()) == before, "who says that it goes has no will"
    for watch in (up, wills, twins):
        watch.client.disconnect()
        watch.client.loop_stop()


def retained():
    writer = client("writer")
    writer.loop_start()
    for number in range(CLIENTS):
        writer.publish(f"lab/kept/{number}/a", str(number), qos=number % 3, retain=True).wait_for_publish(10)
    writer.publish("lab/kept/0/a", b"", qos=1, retain=True).wait_for_publish(10)
    late = Watch("late", "lab/kept/+/a", "lab/+/7/#")
    wait("all that is retained", lambda: len(late.all()) >= CLIENTS - 1)
    time.sleep(0.3)
    assert sorted(int(payload) for _, payload, retain in late.all() if retain) == list(range(1, CLIENTS)), late.all()
    late.client.publish("$SYS/x", b"x", qos=1).wait_for_publish(10)
    everything = Watch("everything", "#")
    wait("all but trees with a $", lambda: len(everything.all()) >= CLIENTS - 1)
    assert not any(topic.startswith("$") for topic, _, _ in everything.all())
    for one in (writer, late.client, everything.client):
        one.disconnect()
        one.loop_stop()


def keep_alive():
    wills = Watch("wills", "lab/silent")
    silent = client("silent", keep_alive=1, will="lab/silent")
    began = time.monotonic()
    # Its loop does not run, so that it stays silent.
    wait("its will", wills.all, 10)
    took = time.monotonic() - began
    assert 1.4 < took < 3, took
    silent.socket().close()
    wills.client.disconnect()
    wills.client.loop_stop()


def other_version():
    said, ended = [], threading.Event()
    five = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="five", protocol=mqtt.MQTTv5)
    five.on_connect = lambda _client, _data, _flags, reason, _properties: said.append(reason)
    five.on_disconnect = lambda *_: ended.set()
    five.connect("127.0.0.1", PORT, 5)
    try:
        for _ in range(50):
            if ended.is_set() or five.loop(0.1) != mqtt.MQTT_ERR_SUCCESS:
                break
        else:
            raise AssertionError("a client of MQTT 5 is let in")
    except (IndexError, mqtt.MQTTException) as error:
        # It looks for properties in an answer without any.
        print(f"a client of MQTT 5 says: {error!r}", flush=True)
    assert all(reason.is_failure for reason in said), said
    assert not five.is_connected()


for part in (retained, keep_alive, other_version, many):
    start = time.monotonic()
    part()
    print(f"{part.__name__}: {time.monotonic() - start:.1f} s", flush=True)
