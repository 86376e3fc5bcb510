"""Tests of what scripts say that they do. `./scripts/test quick` runs them."""
import os
import re
import unittest

SCRIPTS = os.path.join(os.path.dirname(__file__), "..")
# What the first lines of ./scripts/test call a part of all tests, and what runs it.
PARTS = {
    "lints": "lint",
    "unit": "unit",
    "e2e": "e2e",
    "cross": "finish behind",
    "arm": "finish board",
    "power": "finish power",
    "the chart": "./scripts/chart",
    "package": "packages",
    "the bridge's image": "./scripts/bridge-image",
}


def text(name):
    with open(os.path.join(SCRIPTS, name)) as file:
        return file.read()


def head(script):
    """The first comment of a script."""
    return script.split("\n. ", 1)[0]


class Parts(unittest.TestCase):
    def test_all_runs_what_it_says(self):
        script = text("test")
        said = re.search(r"^#   \./scripts/test  .*: (.*)$", head(script), re.M)[1]
        all_of_them = re.search(r"^    all\)\n(.*?)^        ;;", script, re.M | re.S)[1]
        commands = {line.strip() for line in all_of_them.splitlines()}
        self.assertEqual(set(re.split(", | and ", said)), {part for part, command in PARTS.items() if command in commands})

    def test_every_part_is_listed(self):
        script = text("test")
        listed = re.findall(r"^#   \./scripts/test ([a-z0-9]+)  ", head(script), re.M)
        chosen = re.findall(r"^    ([a-z0-9]+)\)", script.split('case "$want" in', 1)[1], re.M)
        usage = re.search(r"usage: \$0 \[([^]]*)\]", script)[1].split("|")
        self.assertEqual((listed, usage), ([one for one in chosen if one != "all"],) * 2)

    def test_head_of_package_has_its_usage(self):
        script = text("package")
        usage = re.search(r'^usage="usage: \$0 (.*)"$', script, re.M)[1]
        self.assertIn(f"#   ./scripts/package {usage}\n", head(script))
