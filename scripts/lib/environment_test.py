"""CONTRIBUTING.md names each environment variable of tests and scripts, and no other. `./scripts/test quick` runs this."""
import os
import re
import unittest

REPO = os.path.join(os.path.dirname(__file__), "..", "..")
# Variables that a test sets for its own child, that the system sets, that every program has, or that the node sets in pods.
OTHERS = {"CARGO_HOME", "TEST_NODE_SOCKET", "TMPDIR", "VERSION_CODENAME", "SAMPAN_STOP_LOCK"}
# How a variable from outside is read: in Rust and Python by its name, in shell scripts with a default.
READ = {
    ".rs": r'"((?:TEST|SAMPAN)_[A-Z_]+)"|env::var(?:_os)?\("(EDGE_RUNTIME_BIN|PICTURES|PROMTOOL)"|option_env!\("([A-Z_]+)"',
    ".py": r'environ(?:\.get)?[\[(]"([A-Z_]+)"',
    "": r"\$\{([A-Z][A-Z_]+):?[-+=]",
}


def files():
    for folder, below, names in os.walk(REPO):
        # What is built or fetched.
        below[:] = [name for name in below if name != "target" and not name.startswith(".")]
        yield from (os.path.join(folder, name) for name in names)


def sources():
    scripts = os.path.join(REPO, "scripts") + os.sep
    for path in files():
        end = os.path.splitext(path)[1]
        kind = "" if path.startswith(scripts) and end in ("", ".sh") else end
        if kind in READ and (kind or path.startswith(scripts)):
            with open(path, encoding="utf-8") as file:
                yield READ[kind], file.read()


def read_by_code():
    found = {name for pattern, text in sources() for groups in re.findall(pattern, text) for name in as_tuple(groups)}
    return found - OTHERS - {""}


def as_tuple(groups):
    return groups if isinstance(groups, tuple) else (groups,)


def documented():
    with open(os.path.join(REPO, "CONTRIBUTING.md"), encoding="utf-8") as file:
        table = file.read().split("## Environment variables", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([A-Z_]+)(?:=[^`]*)?`", row)}


class Variables(unittest.TestCase):
    def test_table_has_each_variable(self):
        self.assertEqual(read_by_code() - documented(), set())

    def test_table_has_no_other(self):
        self.assertEqual(documented() - read_by_code(), set())
