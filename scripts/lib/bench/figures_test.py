"""Tests of the decisions about figures. `./scripts/test quick` runs them."""
import unittest

import figures


def row(**more):
    return figures.new_row("start", "a", more.pop("unit", "s")) | more


def rounds(*pairs):
    """The row of these figures, each with its bare work."""
    rows = []
    for ours, bare in pairs:
        figures.add(rows, row(times=1.6), "ours", ours, bare)
    return rows[0]


class Budgets(unittest.TestCase):
    def test_median_of_rounds_counts(self):
        self.assertFalse(figures.is_over(row(ours=[9, 1, 1], budget=1)))
        self.assertTrue(figures.is_over(row(ours=[2, 1, 2], budget=1)))

    def test_lower_limit(self):
        self.assertTrue(figures.is_over(row(ours=[4], budget=5, at_least=True)))
        self.assertFalse(figures.is_over(row(ours=[6], budget=5, at_least=True)))

    def test_budget_of_zero_is_a_budget(self):
        self.assertTrue(figures.is_over(row(ours=[0.1], budget=0)))
        self.assertFalse(figures.is_over(row(ours=[0], budget=0)))

    def test_multiple_is_taken_round_by_round(self):
        # The host was twice as slow in one round: medians of each side by itself would say 2.0.
        slow = rounds((1.5, 1), (3.0, 2), (1.5, 1))
        self.assertEqual(figures.ratio(slow), 1.5)
        self.assertFalse(figures.is_over(slow))
        self.assertTrue(figures.is_over(slow | {"times": 1.4}))
        self.assertIsNone(figures.ratio(row(ours=[1])))

    def test_round_without_bare_work_has_no_multiple(self):
        found = rounds((1.5, 1), (9.0, None), (3.0, 2))
        self.assertEqual((found["ours"], found["bare"]), ([1.5, 9.0, 3.0], [1, 2]))
        self.assertEqual(figures.ratio(found), 1.5)

    def test_budget_as_text(self):
        self.assertEqual(figures.limit(row()), "")
        self.assertEqual(figures.limit(row(times=1.25)), "1.25 x bare")
        self.assertEqual(figures.limit(row(budget=5, at_least=True)), "at least 5")


class Failures(unittest.TestCase):
    def test_failed_row_keeps_its_figures(self):
        rows = []
        figures.add(rows, row(), "ours", 1)
        figures.same(rows, row())["failed"].append("ours: why")
        self.assertEqual((len(rows), rows[0]["ours"], figures.marks(rows[0])), (1, [1], ["FAILED"]))

    def test_row_that_failed_first_gets_its_unit_and_budget(self):
        rows = []
        figures.same(rows, row(unit=""))["failed"].append("ours: why")
        figures.add(rows, row() | {"times": 1.5}, "ours", 1)
        self.assertEqual((rows[0]["unit"], rows[0]["times"]), ("s", 1.5))

    def test_failed_row_without_a_figure_is_marked(self):
        self.assertEqual(figures.marks(row(failed=["ours: why"], budget=1, times=2)), ["FAILED"])
        self.assertEqual(figures.marks(row(failed=["ours: why"], steal=[9])), ["FAILED", "unreliable"])


class Reliability(unittest.TestCase):
    def test_steal_hides_other_marks(self):
        over = row(ours=[2, 2, 2], budget=1, steal=[0, 0.5, 2.9])
        self.assertEqual(figures.marks(over), ["OVER"])
        self.assertEqual(figures.marks(over | {"steal": [0, 3.1, 0]}), ["unreliable"])

    def test_memory_does_not_depend_on_steal(self):
        self.assertEqual(figures.marks(row(unit="MB", ours=[9], budget=8, steal=[50])), ["OVER"])

    def test_steal_is_a_share_of_all_time(self):
        before = [100, 0, 50, 800, 0, 0, 0, 10, 5, 5]
        after = [150, 0, 70, 820, 0, 0, 0, 20, 5, 5]
        self.assertEqual(figures.stolen(before, after), 10)
        self.assertEqual(figures.stolen(before, before), 0)


class Comparison(unittest.TestCase):
    def test_slower_in_every_round(self):
        self.assertTrue(figures.is_slower(row(ours=[5, 6, 7], against=[4, 3, 4.9])))
        self.assertFalse(figures.is_slower(row(ours=[5, 6, 7], against=[4, 3, 5.1])))
        self.assertFalse(figures.is_slower(row(ours=[5, 6, 7])))

    def test_single_round_has_a_tolerance(self):
        self.assertFalse(figures.is_slower(row(ours=[10.4], against=[10])))
        self.assertTrue(figures.is_slower(row(ours=[10.6], against=[10])))

    def test_growth_of_another_build_is_not_compared(self):
        self.assertFalse(figures.is_slower(row(unit=figures.GROWTH, ours=[30, 30, 30], against=[5, 5, 5])))

    def test_more_is_better_with_a_lower_limit(self):
        self.assertTrue(figures.is_slower(row(ours=[1, 1, 1], against=[2, 2, 2], at_least=True)))
        self.assertFalse(figures.is_slower(row(ours=[2, 2, 2], against=[1, 1, 1], at_least=True)))

    def test_each_side_comes_first_by_turns(self):
        self.assertEqual([figures.turns(["ours", "against"], n)[0] for n in range(3)], ["ours", "against", "ours"])
        self.assertEqual(figures.turns(["ours"], 2), ["ours"])


class Sums(unittest.TestCase):
    def test_rounds_gather_in_one_row(self):
        rows = []
        for side, value in [("ours", 1), ("against", 2), ("ours", 3)]:
            figures.add(rows, row(), side, value, bare=0.5, steal=0)
        self.assertEqual(len(rows), 1)
        self.assertEqual((rows[0]["ours"], rows[0]["against"], rows[0]["bare"]), ([1, 3], [2], [0.5, 0.5]))

    def test_process_that_began_meanwhile_counts_from_zero(self):
        self.assertEqual(figures.spent({1: 5.0, 2: 1.0}, {1: 5.5, 3: 0.25}), 0.75)

    def test_growth_is_in_percent(self):
        self.assertAlmostEqual(figures.grew(2.0, 2.4), 20)
        self.assertEqual(figures.grew(0, 1), 0)

    def test_three_digits_are_shown(self):
        found = [figures.shown(value) for value in (0, 0.05312, 0.00061, 1.708, 12.34, 147, 58812)]
        self.assertEqual(found, ["0", "0.0531", "0.0006", "1.71", "12.3", "147", "58,800"])
