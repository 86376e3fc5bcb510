"""Links of Markdown pages: which of them lead nowhere. Pure: pages come in as texts."""
import posixpath
import re

LINK = re.compile(r"(?:\]\(|(?:src|srcset|href)=\")([^)\"\s]+)")
FENCE = re.compile(r"^ *(```|~~~)")
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:")


def prose(text):
    """Numbered lines outside of code: blocks between fences, indented blocks, and code within a line."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`", "", line)


def anchor(heading):
    """Anchor of a heading as forges make it: lower case, words joined by hyphens, no punctuation."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(text):
    """All anchors of a page. The second heading of one name gets `-1`."""
    seen, fenced = {}, False
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        heading = None if fenced else re.match(r"#{1,6} +(.*?)#*$", line)
        if heading:
            name = anchor(heading[1])
            seen[name] = seen.get(name, -1) + 1
            yield name if seen[name] == 0 else f"{name}-{seen[name]}"


def broken(pages, exists):
    """Sentences about links that lead nowhere. `pages`: text by path from the root; `exists`: whether a path is there."""
    known = {path: set(anchors(text)) for path, text in pages.items()}
    found = []
    for path, text in sorted(pages.items()):
        for number, line in prose(text):
            for link in LINK.findall(line):
                if ELSEWHERE.match(link):
                    continue
                name, _, place = link.partition("#")
                target = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
                if not exists(target):
                    found.append(f"{path}:{number}: {link}: no such file")
                elif place and target in known and place not in known[target]:
                    found.append(f"{path}:{number}: {link}: no such heading")
    return found
