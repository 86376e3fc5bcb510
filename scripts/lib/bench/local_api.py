"""The helper `edge-api`: its memory, and how soon pods start beside pods that flood it (L6 of docs/guarantees.md)."""
import glob
import http.client
import itertools
import os
import ssl
import sys
import time

import beside
from common import REPO, WORK, attempt, row, wait
from figures import turns
from meters import Steal, pss
from node import ROOT

# Memory is given back ten seconds after the last work.
REST = 15
# Pods that flood; each has as many threads as it may have requests, less two.
PODS, THREADS = 5, 6
# Pods that start one by one in each part of a turn.
TURNS, STARTS = 5, 20
# p50 and p99 beside the flood, as multiples of those without it.
MOST = 1.2
OBJECTS, NAMESPACE = 500, "many"
# Pods run Python as it is on this host.
OF_THE_HOST = [path for path in ("/usr", "/lib", "/lib64") if os.path.isdir(path)]
PYTHON = sys.executable if sys.executable.startswith("/usr/") else "/usr/bin/python3"
SECRETS = "/var/run/secrets/kubernetes.io/serviceaccount"
OUT, RBAC = f"{WORK}/flood", "rbac.authorization.k8s.io"
# Names are never used twice.
NUMBERS = itertools.count()


def account(node):
    """The ServiceAccount `flood`, which may read ConfigMaps."""
    node.api.call("POST", "/api/v1/namespaces/default/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "flood"}})
    node.api.call("POST", f"/apis/{RBAC}/v1/clusterroles", {
        "apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "flood"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}],
    })
    node.api.call("POST", f"/apis/{RBAC}/v1/clusterrolebindings", {
        "apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "flood"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "flood"},
        "subjects": [{"kind": "ServiceAccount", "name": "flood", "namespace": "default"}],
    })


def flooder(node, name):
    """A pod that floods the local API while there is the file `go`."""
    paths = [(path, path, True) for path in OF_THE_HOST] + [(f"{REPO}/scripts/lib/bench", "/bench", True), (OUT, "/out", False)]
    volumes = [{"name": f"v{n}", "hostPath": {"path": path}} for n, (path, _, _) in enumerate(paths)]
    mounts = [{"name": f"v{n}", "mountPath": at, "readOnly": only} for n, (_, at, only) in enumerate(paths)]
    spec = {"serviceAccountName": "flood", "automountServiceAccountToken": True, "volumes": volumes}
    command = f"exec {PYTHON} -B /bench/api_flood.py {THREADS} /out/go >/out/{name} 2>&1"
    node.api.pod(name, ["/bin/sh", "-c", command], spec=spec, annotations={"sampan.dev/local-api": "true"}, volumeMounts=mounts)


def counts(names):
    found = {}
    for name in names:
        with open(f"{OUT}/{name}") as file:
            found[name] = beside.counts(file.read())
    return found


def body(node, pod, path):
    """Reads a path with token and certificate of a pod; its network is not needed."""
    inside = lambda *command: node.run(*node.kubectl("exec", pod, "--", *command))
    env = dict(line.split("=", 1) for line in inside("env").splitlines() if "=" in line)
    context = ssl.create_default_context(cadata=inside("cat", f"{SECRETS}/ca.crt"))
    connection = http.client.HTTPSConnection(env["KUBERNETES_SERVICE_HOST"], int(env["KUBERNETES_SERVICE_PORT"]), context=context)
    connection.request("GET", path, headers={"Authorization": f"Bearer {inside('cat', f'{SECRETS}/token').strip()}", "Accept": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"bench: {path}: {answer.status} {text[:200]!r}")
    return text


def kept(size):
    """Whether there is a kept answer of at least this size."""
    files = glob.glob(f"{ROOT}/var/lib/edge-runtime/api/cache/*/*")
    return any(os.path.getsize(file) >= size for file in files)


def keeping(node, pid, pod):
    node.api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    for number in range(OBJECTS):
        metadata = {"name": f"c{number}"}
        node.api.call("POST", path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": f"{number} " * 128}})
    text = body(node, pod, path)
    print(f"    a list of {len(text):,} bytes", flush=True)
    wait(30, "the list is kept", lambda: kept(len(text)))
    time.sleep(REST)
    row(f"edge-api, a list of {OBJECTS} ConfigMaps kept: PSS", pss([pid]), "MB", 2.2)


def starts(node):
    """Seconds from the request to Ready, of pods one by one."""
    took, names = [], [f"beside-{next(NUMBERS)}" for _ in range(STARTS)]
    for name in names:
        began = node.api.pod(name)
        node.api.started(name)
        took.append(node.api.ready[name] - began)
    node.api.delete(names)
    return took


def beside_flood(node, names):
    """Seconds of starts while the pods flood."""
    before = counts(names)
    with open(f"{OUT}/go", "w"):
        pass
    try:
        wait(30, "all pods flood", lambda: not beside.stood_still(before, counts(names)))
        before = counts(names)
        took = starts(node)
        # They say so each second.
        time.sleep(1)
        if still := beside.stood_still(before, counts(names)):
            raise SystemExit(f"bench: {', '.join(still)} did not flood")
    finally:
        os.unlink(f"{OUT}/go")
    # What is under way ends.
    time.sleep(2)
    return took


def flood(node, names):
    took, steal = {"quiet": [], "flooded": []}, Steal()
    # Once before it counts: the monitor runs, and code that was paged out at rest is back.
    starts(node)
    for number in range(TURNS):
        for side in turns(list(took), number):
            took[side] += starts(node) if side == "quiet" else beside_flood(node, names)
    answered, refused = (sum(of) for of in zip(*counts(names).values()))
    print(f"    requests of the flood: {answered} answered, {refused} refused", flush=True)
    stolen = steal.percent()
    for of in (50, 99):
        quiet, flooded = (beside.percentile(took[side], of) for side in ("quiet", "flooded"))
        row(f"create -> Ready beside a flood of the local API, p{of}", flooded, "s", times=MOST, bare=quiet, steal=stolen)


def measure(node, _bare):
    os.makedirs(OUT, exist_ok=True)
    node.restart_edge("local-api: {listen: gateway}\n")
    try:
        wait(60, "the node is Ready again", node.is_ready)
        time.sleep(REST)
        pid = wait(10, "the helper runs", lambda: node.program("edge-api"))
        row("edge-api, idle: PSS", pss([pid]), "MB", 2.2)
        account(node)
        names = [f"flood-{number}" for number in range(PODS)]
        for name in names:
            flooder(node, name)
        node.api.started(*names)
        attempt(f"edge-api, a list of {OBJECTS} ConfigMaps kept: PSS", keeping, node, pid, names[0])
        attempt("create -> Ready beside a flood of the local API", flood, node, names)
    finally:
        node.api.clear()
        node.restart_edge()
