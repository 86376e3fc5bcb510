"""A client of the Kubernetes API in a pod: PyPI kubernetes as it is, with the configuration that it finds there.

clients.py everyday | elect NAME | inform SELECTOR | flood THREADS
"""

import functools
import sys
import threading
import time

import urllib3
from kubernetes import client, config, watch
from kubernetes.informer import ADDED, DELETED, ERROR, MODIFIED, SharedInformer
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock


def say(*words):
    print(*words, flush=True)


def config_map(name):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data={"n": "1"})


def everyday(api, namespace):
    """Reads, writes and watches once, and is refused what its account may not do."""
    say("pods", *(pod.metadata.name for pod in api.list_namespaced_pod(namespace).items))
    since = api.list_namespaced_config_map(namespace).metadata.resource_version
    api.create_namespaced_config_map(namespace, config_map("made-by-python"))
    stream = watch.Watch()
    for event in stream.stream(api.list_namespaced_config_map, namespace, resource_version=since, timeout_seconds=20):
        if event["type"] == "ADDED" and event["object"].metadata.name == "made-by-python":
            say("watched made-by-python")
            stream.stop()
    merge = {"_content_type": "application/merge-patch+json"}
    api.patch_namespaced_config_map("made-by-python", namespace, {"data": {"n": "2"}}, **merge)
    say("n", api.read_namespaced_config_map("made-by-python", namespace).data["n"])
    try:
        api.list_node()
    except client.ApiException as refused:
        say("nodes", refused.status)


def elect(namespace, name):
    """Takes part in an election until it is killed."""
    lock = LeaseLock("leader", namespace, name)
    leaderelection.LeaderElection(
        electionconfig.Config(
            lock,
            lease_duration=6,
            renew_deadline=4,
            retry_period=1,
            onstarted_leading=lambda: say("leads", name),
            onstopped_leading=lambda: say("led", name),
        )
    ).run()


def inform(api, namespace, selector):
    """Follows ConfigMaps for ever, and says each event, each list, and each error of the API."""

    @functools.wraps(api.list_namespaced_config_map)
    def listed(*args, **kwargs):
        answer = api.list_namespaced_config_map(*args, **kwargs)
        if not kwargs.get("watch"):
            say("list")
        return answer

    def applied(found):
        say("apply", found.metadata.name, (found.data or {}).get("n", "-"))

    def failed(error):
        status = getattr(error, "status", None)
        say("gone" if status == 410 else f"error {status or type(error).__name__}")

    informer = SharedInformer(listed, namespace=namespace, label_selector=selector)
    informer.add_event_handler(ADDED, applied)
    informer.add_event_handler(MODIFIED, applied)
    informer.add_event_handler(DELETED, lambda found: say("delete", found.metadata.name))
    informer.add_event_handler(ERROR, failed)
    informer.start()
    while True:
        time.sleep(3600)


def flood(api, namespace, threads):
    """Lists in so many threads without a pause, and says each second how many lists were answered."""
    answered = [0] * threads

    def ask(number):
        while True:
            try:
                api.list_namespaced_config_map(namespace)
                answered[number] += 1
            except client.ApiException as refused:
                say("refused", refused.status)
            except urllib3.exceptions.HTTPError as refused:
                # Its retries are over.
                say("refused", type(refused).__name__)

    for number in range(threads):
        threading.Thread(target=ask, args=(number,), daemon=True).start()
    while True:
        time.sleep(1)
        say("answered", sum(answered))


def main():
    config.load_incluster_config()
    with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
        namespace = file.read().strip()
    api = client.CoreV1Api()
    match sys.argv[1:]:
        case ["everyday"]:
            everyday(api, namespace)
        case ["elect", name]:
            elect(namespace, name)
        case ["inform", selector]:
            inform(api, namespace, selector)
        case ["flood", threads]:
            flood(api, namespace, int(threads))
        case _:
            sys.exit(__doc__)


main()
