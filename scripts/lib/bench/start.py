"""How fast pods start: one by one, fifty at once, fifty of a Deployment; and what that costs in CPU time."""
import statistics

from burst import PARTS, burst, warm
from common import RUNTIME, attempt, row, wait
from meters import Steal

# As multiples of the bare runtime: crun takes less time itself, so that the same work of ours is more beside it.
ONE = 1.8 if RUNTIME.rsplit("/", 1)[-1] == "crun" else 1.6
FIFTY = 1.25
FIFTY_PODS = "/apis/apps/v1/namespaces/default/deployments/fifty"
CPU = dict(zip(PARTS, (3, 1, 4)))


def measure(node, bare):
    for what, part, reference in [("create -> Ready, serial, median of 20", serial, bare.one), ("50 pods at once, all Ready", together, bare.fifty)]:
        if not attempt(what, part, node, reference):
            node.api.clear()


def together(node, bare):
    """Fifty pods, and the same by a Deployment."""
    cost = burst(node, 50)
    row("50 pods at once, all Ready", cost.ready, "s", times=FIFTY, bare=bare, steal=cost.steal)
    row("50 pods at once, all created", cost.created, "s", steal=cost.steal)
    for part, budget in CPU.items():
        row(f"50 pods at once, CPU per pod: {part}", cost.cpu[part], "ms", budget, steal=cost.steal)
    if node.api.serves("/apis/apps/v1/namespaces/default/deployments"):
        if not attempt("Deployment of 50, one node: all Ready", deployment, node, cost.ready):
            node.api.call("DELETE", FIFTY_PODS)
            node.api.clear()


def serial(node, bare):
    warm(node)
    took, steal = [], Steal()
    for i in range(20):
        began = node.api.pod(f"serial-{i}")
        node.api.started(f"serial-{i}")
        took.append(node.api.ready[f"serial-{i}"] - began)
    stolen = steal.percent()
    row("create -> Ready, serial, median of 20", statistics.median(took), "s", times=ONE, bare=bare, steal=stolen)
    row("create -> Ready, serial, worst of 20", max(took), "s", steal=stolen)
    node.api.delete([f"serial-{i}" for i in range(20)])


def deployment(node, pods):
    """The same fifty pods, made by a Deployment."""
    warm(node)
    node.api.seen, node.api.ready = {}, {}
    steal = Steal()
    began = node.api.deployment("fifty", 50)
    wait(120, "fifty pods of a Deployment are Ready", lambda: len(node.api.ready) == 50)
    stolen = steal.percent()
    row("Deployment of 50, one node: all pods created", max(node.api.seen.values()) - began, "s", 1, steal=stolen)
    row("Deployment of 50, one node: all Ready", max(node.api.ready.values()) - began, "s", times=1.2, bare=pods, steal=stolen)
    names = list(node.api.ready)
    node.api.call("DELETE", FIFTY_PODS)
    wait(60, "pods are deleted", lambda: all(name in node.api.gone for name in names))
    for name in names:
        node.api.forget(name)
