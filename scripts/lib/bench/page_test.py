"""Tests of the page of figures, and of where figures stand. `./scripts/test quick` runs them."""
import os
import unittest

import page
from figures import add, new_row

REPO = os.path.join(os.path.dirname(__file__), "../../..")


def text(path):
    with open(os.path.join(REPO, path)) as file:
        return file.read()


def measured():
    rows = []
    for value, bare, steal in [(0.05, 0.025, 0), (0.06, 0.03, 5), (0.07, 0.035, 0)]:
        add(rows, new_row("start", "create -> Ready, serial, median of 20", "s", times=1.6), "ours", value, bare, steal)
    add(rows, new_row("memory", "node processes PSS, 50 pods", "MB", 11), "ours", 12.34)
    add(rows, new_row("memory", "node processes PSS, 50 pods", "MB", 11), "against", 10)
    return rows


class Page(unittest.TestCase):
    def test_rounds_median_multiple_and_marks_are_shown(self):
        found = page.page(measured(), {"when": "today"})
        self.assertIn("| create -> Ready, serial, median of 20 | 0.0500, 0.0600, 0.0700 s | 0.0600 | 1.6 x bare | 0.0250, 0.0300, 0.0350 | 2.00 | 5.00 | **unreliable** |", found)
        self.assertIn("| node processes PSS, 50 pods | 12.3 MB | 11 | 10.0 | **OVER** **slower** |", found)
        self.assertIn("| when | today |", found)
        self.assertNotIn("## Probes", found)

    def test_table_of_the_readme_is_part_of_the_page(self):
        rows = measured()
        lines = page.summary(rows).split("\n")
        self.assertEqual(len(lines), 2 + len(page.OF_README))
        self.assertLessEqual(set(lines), set(page.compared(rows).split("\n")))
        self.assertIn("| `create` to Ready, one pod, median | 1.00 s | 0.20 to 0.23 s | 0.0600 s (unreliable) | 0.0300 s (unreliable) |", page.compared(rows))
        self.assertIn(page.compared(rows), page.page(rows, {}))

    def test_earlier_figures_stand_until_measured(self):
        found = page.compared(measured())
        self.assertIn("| 50 pods at once, all Ready | 66.9 s | 7.6 s | 2.5 s (earlier) | 1.0 s (earlier) |", found)
        self.assertIn("| the same with 50 pods | 333 MB | 316 MB | 12.3 MB |  |", found)
        self.assertIn("kube-proxy 1.31 s", page.page([], {}))

    def test_run_beside_kube_proxy_replaces_its_earlier_figures(self):
        rows = []
        add(rows, new_row("services", page.BESIDE_KUBE_PROXY, "s"), "ours", 0.05, bare=0.4)
        self.assertNotIn("kube-proxy 1.31 s", page.page(rows, {}))
        source = text("scripts/lib/bench/services.py")
        self.assertIn(f'row("{page.BESIDE_KUBE_PROXY}"', source)

    def test_failed_row_is_shown(self):
        rows = measured()
        rows.append(new_row("kinds", "50 pods with a claim: CPU for each", "") | {"failed": ["ours: why"]})
        self.assertIn("| 50 pods with a claim: CPU for each | **FAILED** |", page.page(rows, {}))

    def test_only_text_between_the_marks_is_replaced(self):
        before = f"a\n{page.BEGIN}\nold\n{page.END}\nb\n"
        self.assertEqual(page.replaced(before, "new"), f"a\n{page.BEGIN}\nnew\n{page.END}\nb\n")

    def test_readme_has_the_figures_of_the_page(self):
        inner = text("README.md").split(page.BEGIN)[1].split(page.END)[0].strip()
        self.assertLessEqual(set(inner.split("\n")), set(text("docs/benchmarks.md").split("\n")), "run ./scripts/bench --write")
        self.assertEqual(len(inner.split("\n")), 2 + len(page.OF_README))

    def test_every_suite_has_a_title(self):
        suites = text("scripts/bench").split("names:")[1].split(".")[0]
        self.assertEqual(set(suites.replace("#", "").replace(",", " ").split()), set(page.GROUPS))
