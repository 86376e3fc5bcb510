"""Tests of what a burst of pods is said to cost. `./scripts/test quick` runs them."""
import time
import unittest

import burst


class Api:
    """Pods are Ready 10 ms after their request."""

    def __init__(self):
        self.ready, self.left = {}, set()

    def pod(self, name, **_more):
        began = time.monotonic()
        self.ready[name] = began + 0.01
        self.left.add(name)
        return began

    def started(self, *_names, limit=60):
        pass

    def delete(self, names):
        self.left.difference_update(names)


class Node:
    """Its bridge uses 2 ms, its daemon 1 ms and a helper that begins meanwhile 0.5 ms for each pod but the warm one."""

    def __init__(self):
        self.api = Api()

    def parts(self):
        count = len(self.api.ready) - 1
        helper = {"helper": count * 0.0005} if count else {}
        return {"daemon": {"run": 7 + count * 0.001} | helper, "monitor": {}, "bridge": {"bridge": 9 + count * 0.002}}


class Burst(unittest.TestCase):
    def setUp(self):
        self.after, burst.AFTER = burst.AFTER, 0

    def tearDown(self):
        burst.AFTER = self.after

    def test_cost_is_for_each_pod_and_part(self):
        node = Node()
        cost = burst.burst(node, 4)
        for part, milliseconds in [("daemon", 1.5), ("monitor", 0), ("bridge", 2)]:
            self.assertAlmostEqual(cost.cpu[part], milliseconds)
        self.assertAlmostEqual(cost.cpu_each(), 3.5)
        self.assertTrue(0.01 <= cost.ready < 1 and cost.each() == cost.ready * 250)
        self.assertEqual(node.api.left, set())

    def test_mean_of_bursts_keeps_the_worst_steal(self):
        one = burst.Cost(10, 1.0, 0.5, {"daemon": 2}, 0)
        two = burst.Cost(10, 2.0, 0.7, {"daemon": 4}, 5)
        self.assertEqual(burst.mean([one, two]), burst.Cost(10, 1.5, 0.6, {"daemon": 3}, 5))
