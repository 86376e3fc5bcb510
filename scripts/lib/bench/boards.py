"""What kubectl shows of boards that enrol, and what the simulated boards print. Pure."""
import collections
import json


class Requests:
    """Names of requests in the order in which `kubectl get csr --watch -o name` shows them. It shows one again at each change."""

    def __init__(self):
        self.seen = set()
        # One thread adds while another one takes.
        self.new = collections.deque()

    def shown(self, line):
        name = line.strip().rpartition("/")[2]
        if name and name not in self.seen:
            self.seen.add(name)
            self.new.append(name)

    def take(self, most):
        """Up to `most` that were not taken before."""
        return [self.new.popleft() for _ in range(min(most, len(self.new)))]


def outcomes(text, tokens):
    """What became of the boards of each token, in their order."""
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if len(found) != tokens:
        raise SystemExit(f"bench: the simulated boards told of {len(found)} of {tokens} tokens")
    return found


def failures(found):
    """Why boards have no certificate, as text; empty if all have one."""
    reasons = collections.Counter()
    for outcome in found:
        reasons.update(outcome["failures"])
    return ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
