"""Tests of what is read of a load. `./scripts/test quick` runs them."""
import unittest

import beside


class Percentile(unittest.TestCase):
    def test_smallest_value_that_so_many_are_not_above(self):
        values = list(range(1, 101))
        self.assertEqual([beside.percentile(values, of) for of in (50, 99, 100)], [50, 99, 100])
        self.assertEqual([beside.percentile([3, 1, 2], of) for of in (1, 50, 99)], [1, 2, 3])


class Flood(unittest.TestCase):
    def test_last_whole_line_counts(self):
        self.assertEqual(beside.counts("answered 1 refused 0\nanswered 20 refused 3\nansw"), (20, 3))
        self.assertEqual(beside.counts("answered 1 refused 0\nansw"), (1, 0))
        self.assertEqual(beside.counts("answered 5 refused 6\nanswered 71 refu"), (5, 6))
        for text in ("", "\n", "answered 1 refused 2", "Traceback\n"):
            self.assertEqual(beside.counts(text), (0, 0))

    def test_flood_that_does_not_ask_is_named(self):
        before = {"a": (1, 1), "b": (2, 0)}
        self.assertEqual(beside.stood_still(before, {"a": (2, 1), "b": (2, 0)}), ["b"])
        self.assertEqual(beside.stood_still(before, {"a": (2, 1), "b": (2, 9)}), [])

    def test_flood_without_an_answer_is_none(self):
        self.assertEqual(beside.stood_still({"a": (1, 1), "b": (2, 0)}, {"a": (1, 9), "b": (2, 9)}), ["a", "b"])
