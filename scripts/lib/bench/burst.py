"""Many pods at once: how long they take, and what each costs the node's parts in CPU time."""
import dataclasses
import itertools
import statistics
import time

import figures
from meters import Steal

PARTS = ("daemon", "monitor", "bridge")
# Events and the last reports follow the last pod's start.
AFTER = 2
# Names are never used twice.
NUMBERS = itertools.count()


@dataclasses.dataclass
class Cost:
    """`ready`: first request to the last Ready, `created`: to the last answer, in seconds. `cpu`: milliseconds for each pod,
    by part. `steal`: in percent, while they started."""

    count: int
    ready: float
    created: float
    cpu: dict
    steal: float

    def each(self):
        """Milliseconds from the first request to the last Ready, for each pod."""
        return self.ready / self.count * 1e3

    def cpu_each(self):
        return sum(self.cpu.values())


def mean(costs):
    """The mean of several bursts of the same size, with the highest steal."""
    first = costs[0]
    of = lambda value: statistics.mean(value(cost) for cost in costs)
    cpu = {part: of(lambda cost, part=part: cost.cpu[part]) for part in first.cpu}
    return Cost(first.count, of(lambda cost: cost.ready), of(lambda cost: cost.created), cpu, max(cost.steal for cost in costs))


def warm(node):
    """One pod comes and goes: the monitor runs, and code that was paged out at rest is back."""
    name = f"warm-{next(NUMBERS)}"
    node.api.pod(name)
    node.api.started(name)
    node.api.delete([name])
    time.sleep(AFTER)


def burst(node, count, more=lambda turn: {}):
    """Starts `count` pods, measures, deletes them. `more` gives arguments of `Api.pod` for the pod with this number."""
    warm(node)
    names = [f"many-{next(NUMBERS)}" for _ in range(count)]
    pods = [(name, more(turn)) for turn, name in enumerate(names)]
    before, steal = node.parts(), Steal()
    began = min(node.api.pod(name, **arguments) for name, arguments in pods)
    created = time.monotonic() - began
    node.api.started(*names, limit=120)
    stolen = steal.percent()
    ready = max(node.api.ready[name] for name in names) - began
    time.sleep(AFTER)
    after = node.parts()
    node.api.delete(names)
    cpu = {part: figures.spent(before[part], after[part]) / count * 1e3 for part in PARTS}
    return Cost(count, ready, created, cpu, stolen)


def bursts(node, count, more=lambda turn: {}):
    """The mean of up to three small bursts: a few pods are too few for a figure."""
    return mean([burst(node, count, more) for _ in range(max(1, min(3, 50 // count)))])
