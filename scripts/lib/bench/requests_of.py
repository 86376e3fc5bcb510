"""How long an API takes for one request after the other: the embedded one, beside a kube-apiserver on the same host.

BENCH_APISERVER=KUBECONFIG names one whose kubeconfig holds a client certificate. Nobody else may be at work on it: the pods
that are made are for no scheduler, but its quotas and its admission would count.
"""
import http.client
import json
import os
import re
import threading
import time

from api import Api
from common import row, wait
from news import tell

OTHER = os.environ.get("BENCH_APISERVER")
NAMESPACE = "bench-requests"
PODS = 500
# What is asked first finds caches and connections cold.
COLD = 20
TIMES = {"GET": 500, "LIST of 500": 60, "PATCH": 500, "watch event": 500}


def measure(api):
    bare = {}
    if OTHER:
        server = re.search(r"server\"?: \"?https://(?:127\.0\.0\.1|localhost):(\d+)", open(OTHER).read())
        if not server:
            raise SystemExit(f"bench: {OTHER} names no server on this host")
        bare = ask(Api(int(server[1]), OTHER))
    else:
        print("    no kube-apiserver to compare with (BENCH_APISERVER=KUBECONFIG)", flush=True)
    for name, took in ask(api).items():
        row(f"{name}, one after the other: p99", p99(took), "ms", budget=name in bare and p99(bare[name]) or None, bare=name in bare and p99(bare[name]) or None)


def p99(took):
    took = sorted(took)
    return took[min(len(took) - 1, int(len(took) * 0.99))] * 1000


def pod(i):
    """A pod of ordinary size that nobody schedules."""
    env = [{"name": f"VARIABLE_{n}", "value": f"the value of the variable {n}"} for n in range(10)]
    container = {"name": "c", "image": "image.example/app:1", "env": env, "ports": [{"containerPort": 80}]}
    spec = {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{i}", "labels": {"app": "bench"}}, "spec": spec}


def ask(api):
    """By request, seconds for each."""
    path = f"/api/v1/namespaces/{NAMESPACE}"
    api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    try:
        api.call("POST", f"{path}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    except RuntimeError:
        pass  # Its controllers made it.
    try:
        for i in range(PODS):
            api.call("POST", f"{path}/pods", pod(i))
        return times(api, f"{path}/pods")
    finally:
        api.call("DELETE", f"{path}/pods?gracePeriodSeconds=0")
        api.call("DELETE", path)


def times(api, pods):
    one = api.connect()

    def request(method, path, body=None, kind="application/merge-patch+json"):
        began = time.perf_counter()
        one.request(method, path, body, {"Accept": "application/json", "Content-Type": kind} if body else {"Accept": "application/json"})
        answer = one.getresponse()
        text = answer.read()
        took = time.perf_counter() - began
        if answer.status != 200:
            raise SystemExit(f"bench: {method} {path}: {answer.status} {text[:300]}")
        return took

    def repeat(name, ask):
        return [ask(i) for i in range(COLD + TIMES[name])][COLD:]

    patch = lambda i: json.dumps({"metadata": {"annotations": {"bench": str(i)}}})
    return {
        "GET": repeat("GET", lambda i: request("GET", f"{pods}/pod-{i % PODS}")),
        "LIST of 500": repeat("LIST of 500", lambda _: request("GET", pods)),
        "PATCH": repeat("PATCH", lambda i: request("PATCH", f"{pods}/pod-{i % PODS}", patch(i))),
        "watch event": events(api, pods, lambda i: request("PATCH", f"{pods}/pod-0", patch(f"watched-{i}"))),
    }


def events(api, pods, change):
    """From the request that changes a pod to the event of it at another client."""
    version = api.call("GET", f"{pods}?limit=1")["metadata"]["resourceVersion"]
    came = {}

    def follow():
        connection = api.connect()
        connection.request("GET", f"{pods}?watch=1&resourceVersion={version}", headers={"Accept": "application/json"})
        answer = connection.getresponse()
        try:
            while line := answer.readline():
                now = time.perf_counter()
                if found := re.search(rb'"bench":"watched-(\d+)"', line):
                    came.setdefault(int(found[1]), now)
                    tell()
                    if int(found[1]) == COLD + TIMES["watch event"] - 1:
                        return
        except (http.client.HTTPException, OSError):
            return
        finally:
            connection.close()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    time.sleep(1)
    took = []
    for i in range(COLD + TIMES["watch event"]):
        began = time.perf_counter()
        change(i)
        wait(10, "a watch told of a change", lambda: i in came)
        took.append(came[i] - began)
    return took[COLD:]
