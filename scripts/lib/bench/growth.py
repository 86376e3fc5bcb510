"""Whether a pod costs more where there is more: pods at once, Services, policies. Time and CPU for each pod."""
import time

from burst import bursts
from common import attempt, row
from figures import GROWTH, grew
from services import SERVICES, service

SIZES, MANY_SERVICES, POLICIES = (10, 50, 110), (100, 1000), 50
NETWORK_POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
# From the last object made to rules in force everywhere.
SETTLE = 5
# From the smallest number to the largest, in percent.
MOST = 20


def own_app(turn):
    """Each pod has an application of its own. Variables of Services are left out: reading them is the OCI runtime's work."""
    return {"labels": {"app": f"app-{turn}"}, "spec": {"enableServiceLinks": False}}


def policy(name, selected, allowed):
    """Lets the pods with the label `app: allowed` in to those with `app: selected`, and no others."""
    spec = {
        "podSelector": {"matchLabels": {"app": selected}}, "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": allowed}}}]}],
    }
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec}


def told(what, cost):
    row(f"{what}: time for each", cost.each(), "ms", steal=cost.steal)
    row(f"{what}: CPU for each", cost.cpu_each(), "ms", steal=cost.steal)


def grown(what, first, last):
    steal = max(first.steal, last.steal)
    row(f"{what}: time for each pod", grew(first.each(), last.each()), GROWTH, MOST, steal=steal)
    row(f"{what}: CPU for each pod", grew(first.cpu_each(), last.cpu_each()), GROWTH, MOST, steal=steal)


def measure(node, _bare):
    costs = {}
    for count in SIZES:
        costs[count] = bursts(node, count, own_app)
        told(f"{count} pods", costs[count])
    grown(f"{SIZES[0]} to {SIZES[-1]} pods at once", costs[SIZES[0]], costs[SIZES[-1]])
    for what, path, part in [("0 to 50 policies", NETWORK_POLICIES, with_policies), ("0 to 1,000 Services", SERVICES, with_services)]:
        if node.api.serves(path) and not attempt(what, part, node, costs[50]):
            node.api.clear()


def with_policies(node, without):
    """Each of the pods is selected by one policy, which lets its neighbour in."""
    for turn in range(POLICIES):
        node.api.call("POST", NETWORK_POLICIES, policy(f"policy-{turn}", f"app-{turn}", f"app-{(turn + 1) % POLICIES}"))
    time.sleep(SETTLE)
    cost = bursts(node, 50, own_app)
    told(f"50 pods, {POLICIES} policies", cost)
    grown(f"0 to {POLICIES} policies", without, cost)
    node.api.call("DELETE", NETWORK_POLICIES)
    time.sleep(SETTLE)


def with_services(node, without):
    """Services that select other pods."""
    made = 0
    for count in MANY_SERVICES:
        for number in range(made, count):
            service(node, f"other-{number}", {80: 8080}, selector={"app": f"other-{number}"})
        made = count
        time.sleep(SETTLE)
        cost = bursts(node, 50, own_app)
        told(f"50 pods, {count} Services", cost)
    grown(f"0 to {MANY_SERVICES[-1]} Services", without, cost)
    for number in range(made):
        node.api.call("DELETE", f"{SERVICES}/other-{number}")
    time.sleep(SETTLE)
