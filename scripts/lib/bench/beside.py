"""Pods' start quiet and beside a load, and what the load says of itself. Pure."""


def percentile(values, of):
    """The smallest value that so many percent are not above."""
    return sorted(values)[max(0, -(-len(values) * of // 100) - 1)]


def counts(text):
    """Requests of a flood so far, answered and refused: its last whole line `answered N refused M`; none without a line."""
    lines = text[: text.rfind("\n") + 1].splitlines()
    last = next((words for line in reversed(lines) if (words := line.split())[:1] == ["answered"]), None)
    return (int(last[1]), int(last[3])) if last else (0, 0)


def stood_still(before, after):
    """Names of floods that have not asked in the meantime; all of them if none was answered: such a flood shows nothing.
    Both map names to `counts`."""
    if sum(answered for answered, _ in after.values()) == sum(answered for answered, _ in before.values()):
        return sorted(after)
    return sorted(name for name in after if sum(after[name]) == sum(before[name]))
