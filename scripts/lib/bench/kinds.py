"""What a pod costs more with a hostPath, a claim, a host port, a policy or a Service: CPU and time for each of fifty."""
import os
import time

from burst import burst
from common import WORK, attempt, row
from figures import GROWTH, grew
from growth import NETWORK_POLICIES, policy
from services import SERVICES, service

# More than the same pod without it, in percent.
MOST = 10
# From an object made to the node that knows it, in seconds.
SETTLE = 3
CLAIMS, VOLUMES = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/persistentvolumes"
FOLDER = f"{WORK}/shared"
LABELS = {"app": "kind"}
FIRST_PORT = 20000


def mounted(volume):
    return {"spec": {"volumes": [{"name": "v"} | volume]}, "volumeMounts": [{"name": "v", "mountPath": "/data"}]}


def claim(node):
    """One volume of this node, and the claim that is bound to it."""
    size, mode = "1Mi", ["ReadWriteOnce"]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["edge-1"]}
    node.api.call("POST", VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "kind"}, "spec": {
        "capacity": {"storage": size}, "accessModes": mode, "storageClassName": "", "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": FOLDER}, "claimRef": {"namespace": "default", "name": "kind"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }})
    node.api.call("POST", CLAIMS, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "kind"}, "spec": {
        "accessModes": mode, "storageClassName": "", "resources": {"requests": {"storage": size}},
    }})


def measure(node, _bare):
    os.makedirs(FOLDER, exist_ok=True)
    nothing = lambda _node: None
    plain = lambda _turn: {"labels": LABELS}
    let_in = policy("kind", LABELS["app"], "other")
    without = burst(node, 50, plain)
    # What it is; the objects that it takes, where the API has them; how they are made; the pod.
    kinds = [
        ("a hostPath", None, nothing, lambda _turn: mounted({"hostPath": {"path": FOLDER}})),
        ("a claim", CLAIMS, claim, lambda _turn: mounted({"persistentVolumeClaim": {"claimName": "kind"}})),
        ("a host port", None, nothing, lambda turn: {"ports": [{"containerPort": 80, "hostPort": FIRST_PORT + turn}]}),
        ("a policy", NETWORK_POLICIES, lambda node: node.api.call("POST", NETWORK_POLICIES, let_in), plain),
        ("a Service", SERVICES, lambda node: service(node, "kind", {80: 8080}, selector=LABELS), plain),
    ]
    for what, path, prepare, pod in kinds:
        if path and not node.api.serves(path):
            print(f"    {what}: this build has none", flush=True)
            continue
        if not attempt(f"50 pods with {what}: CPU for each", one, node, what, prepare, pod, without):
            node.api.clear()
        if path:
            attempt(f"{what} is deleted", node.api.call, "DELETE", f"{path}/kind")


def one(node, what, prepare, pod, without):
    prepare(node)
    time.sleep(SETTLE)
    cost = burst(node, 50, pod)
    steal = max(without.steal, cost.steal)
    row(f"50 pods with {what}: CPU for each", grew(without.cpu_each(), cost.cpu_each()), GROWTH, MOST, steal=steal)
    row(f"50 pods with {what}: time for each", grew(without.each(), cost.each()), GROWTH, steal=steal)
