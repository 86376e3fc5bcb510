"""Tests of all pages: commands have verbs and flags of the programs, and scripts, files and keys of config.yaml that pages name
exist, and so do messages that troubleshooting explains (links: links_test.py). `./scripts/test quick` runs them."""
import glob
import os
import re
import unittest

REPO = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
# These also name what is gone, helpers of programs, and files relative to a crate.
UNTESTED = ("ARCHITECTURE.md", "CHANGELOG.md", "docs/history.md")
SKIPPED_FOLDERS = ("target", "fixtures", "node_modules")
FOLDERS = "cloud-bridge|cross|deploy|docs|edge-protocol|edge-runtime|examples|packaging|scripts|tests"


def text(path):
    with open(os.path.join(REPO, path), encoding="utf-8") as file:
        return file.read()


def files(folder, ending):
    """Paths of files below a folder, relative to the repository."""
    for where, folders, names in os.walk(os.path.join(REPO, folder)):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS]
        yield from (os.path.relpath(os.path.join(where, name), REPO) for name in names if name.endswith(ending))


def split(page):
    """(code spans, lines of code blocks) of a page; a command over several lines is one line."""
    prose, code, fence, was_code, blank = [], [], False, False, True
    for line in page.split("\n"):
        if line.lstrip().startswith("```"):
            fence = not fence
            continue
        is_code = fence or (line.startswith("    ") and (blank or was_code))
        (code if is_code else prose).append(line)
        blank, was_code = not line.strip(), is_code or (was_code and not line.strip())
    prose = "\n".join(prose)
    spans = [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", prose)]
    lines = re.sub(r"\\\n\s*", "", "\n".join(code)).split("\n")
    return spans, lines


def kebab(name):
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", name).lower().replace("_", "-")


def edge_programs():
    """Verbs and flags of edge-runtime and edge-admin, from their tables (edge-runtime/src/cli/verb.rs)."""
    source = "\n".join(text(path) for folder in ("edge-runtime/src/cli", "edge-runtime/admin/src") for path in files(folder, ".rs"))
    verbs = set(re.findall(r'\bVerb \{\s*name: "([^"]+)"|\bVerb::helper\(\s*"([^"]+)"', source))
    flags = set(re.findall(r'\bFlag::(?:switch|value)\(\s*"([^"]+)"', source))
    launcher = set(re.findall(r'(?:Some\(|: &str = )"([a-z-]+)"', text("edge-runtime/launcher/src/main.rs")))
    return {name: {} for verb in verbs for name in verb if name} | {name: {} for name in launcher | {"help"}}, flags


def bridge_program():
    """Verbs of cloud-bridge with the verbs below each, and its flags, from what clap derives them from."""
    source = "\n".join(text(path) for path in files("cloud-bridge/src", ".rs"))
    enums = dict(re.findall(r"derive\([^)]*\bSubcommand\b[^)]*\)\]\n(?:#\[.*\]\n)*(?:pub(?:\([a-z]+\))? )?enum (\w+) \{\n(.*?)^\}", source, re.M | re.S))
    variants = {name: re.findall(r"^    (\w+)\b(?:\((?:\w+::)*(\w+)\))?", body, re.M) for name, body in enums.items()}
    verbs = {kebab(verb): {kebab(below): {} for below, _ in variants.get(kind, [])} for verb, kind in variants["Verb"]}
    fields = re.findall(r"#\[arg\((.*?\blong\b.*?)\)\]\n(?:\s*(?:#\[|///).*\n)*\s*(?:pub(?:\([a-z]+\))? )?(\w+):", source)
    named = [re.search(r'\blong = "([^"]+)"', attribute) for attribute, _ in fields]
    return verbs | {"help": {}}, {name[1] if name else kebab(field) for name, (_, field) in zip(named, fields)}


PROGRAMS = {"edge-runtime": edge_programs(), "edge-admin": edge_programs(), "cloud-bridge": bridge_program()}
FLAGS_OF_ALL = {"help", "version", "root"}


def problems_of_command(line):
    """What is wrong with the calls of our programs in a line of a shell."""
    line = re.sub(r"\s#\s.*$", "", re.sub(r"^\s*[$#] ", "", line))
    for command in re.split(r"&&|\|\|?|;|[<$]\(| -- ", line):
        words = re.sub(r"^\s*(?:sudo\s+|\w+=\S*\s+)*", "", command).split()
        program = os.path.basename(words[0]) if words else ""
        if program not in PROGRAMS:
            continue
        below, flags = PROGRAMS[program]
        for flag in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", command):
            if flag not in flags | FLAGS_OF_ALL:
                yield f"{program} does not have the flag --{flag}"
        words = re.sub(r"^--root[ =]\S+ ", "", " ".join(words[1:])).split()
        for word in words:
            if not below or not re.fullmatch(r"[a-z][a-z-]*", word):
                break
            if word not in below:
                yield f"{program} does not have the verb {word}"
                break
            below = below[word]


# Messages of other programs, and a row of `edge-runtime status`.
NOT_OURS = ("x509: ", "Address already in use", "link not connected")
# What a message has from the machine: names, numbers, paths, quoted text.
FROM_MACHINE = r"…|\b[A-Z]+\b|\S*\d\S*|\"|\S*/\S*"


def literal(message):
    """The longest text of a message that is the same on all machines; nothing if it has less than three words."""
    parts = [part.strip(" :;,.") for part in re.split(FROM_MACHINE, message)]
    longest = max(parts, key=lambda part: len(part.split()))
    return longest if len(longest.split()) >= 3 else ""


def sources():
    """Rust sources, with each text that goes over several lines in one."""
    rust = "\n".join(text(path) for folder in ("cloud-bridge", "edge-protocol", "edge-runtime") for path in files(folder, ".rs"))
    return re.sub(r"\s+", " ", re.sub(r"\\\n\s*", "", rust))


PAGES = sorted(files("", ".md"))


class Pages(unittest.TestCase):
    def none(self, problems):
        self.assertEqual([], sorted(set(problems)))

    def test_commands_have_verbs_and_flags_of_the_programs(self):
        problems = []
        for page in PAGES:
            spans, lines = split(text(page))
            if page not in UNTESTED:
                problems += [f"{page}: {problem}" for line in spans + lines for problem in problems_of_command(line)]
        self.none(problems)

    def test_named_keys_of_config_exist(self):
        keys = re.findall(r'\bkey\(\s*"([^"]+)"', text("edge-runtime/admin/src/man/keys.rs"))
        sections = {key.split(".")[0] for key in keys if "." in key}
        problems = []
        for page in PAGES:
            for span in split(text(page))[0] if page not in UNTESTED else []:
                found = re.match(r"([a-z-]+)\.[a-z][a-z.-]+(?=$|:)", span)
                if found and found[1] in sections and not any(f"{key}.".startswith(f"{found[0]}.") for key in keys):
                    problems.append(f"{page}: config.yaml does not have the key {found[0]}")
        self.none(problems)

    def test_named_files_exist(self):
        problems = []
        for page in PAGES:
            spans, lines = split(text(page))
            code = spans + lines if page not in UNTESTED else []
            for path in re.findall(rf"(?<![\w/.@:-])(?:\./)?((?:{FOLDERS})/[\w./*-]*[\w*])", "\n".join(code)):
                # The name of kubectl for the Deployment of the bridge.
                if path != "deploy/cloud-bridge" and not glob.glob(os.path.join(REPO, path)):
                    problems.append(f"{page}: {path} does not exist")
        self.none(problems)

    def test_messages_of_troubleshooting_exist(self):
        cells = [line.split("|")[1] for line in text("docs/troubleshooting.md").splitlines() if line.startswith("| ")]
        messages = [span for cell in cells for span in re.findall(r"`([^`]+)`", cell) if not span.startswith(NOT_OURS)]
        known, literals = sources(), [literal(message) for message in messages]
        self.assertGreater(len(list(filter(None, literals))), 30)
        self.none(f"no program says: {one}" for one in literals if one not in known)

    def test_docs_has_a_table_of_its_pages(self):
        listed = re.findall(r"\]\(([a-z0-9-]+\.md)\)", text("docs/README.md"))
        self.assertEqual({page for page in PAGES if os.path.dirname(page) == "docs"}, {"docs/README.md"} | {f"docs/{page}" for page in listed})


class Messages(unittest.TestCase):
    def test_literal_is_the_longest_text_that_is_the_same_everywhere(self):
        for message, wanted in [
            ('… refused (401): the join token expired at TIME', "the join token expired at"),
            ('there is no unused join token "X": …', "there is no unused join token"),
            ("…/store.db does not exist: no node has run here", "does not exist: no node has run here"),
            ("HOST: no such", ""),
        ]:
            self.assertEqual(literal(message), wanted, message)


class Commands(unittest.TestCase):
    def test_wrong_calls_are_found(self):
        self.assertIn("create", PROGRAMS["cloud-bridge"][0]["token"])
        for right in ["$ sudo edge-runtime ps --all", "cloud-bridge token create NODE", "apt purge edge-runtime", "edge-runtime --root D ps",
                      "kubectl exec deploy/cloud-bridge -- /cloud-bridge token create N --ttl 2h", "edge-runtime exec POD -- ls --color"]:
            self.assertEqual([], list(problems_of_command(right)), right)
        for wrong in ["edge-runtime pods-of-all", "cloud-bridge token make N", "ls && target/fast/edge-runtime ps --every", "cloud-bridge serve --bogus"]:
            self.assertEqual(1, len(list(problems_of_command(wrong))), wrong)
