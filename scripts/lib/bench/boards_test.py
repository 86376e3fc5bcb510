"""Tests of what is read of boards that enrol. `./scripts/test quick` runs them."""
import json
import unittest

import boards


def printed(**more):
    return json.dumps({"boards": 2, "enrolled": 2, "p50": 1.5, "p99": 2.5, "worst": 2.5, "asks": 3, "busy": 0, "failures": {}} | more)


class Requests(unittest.TestCase):
    def test_each_request_is_taken_once_in_order(self):
        requests = boards.Requests()
        for name in ("enrol-b", "enrol-a", "enrol-b"):
            requests.shown(f"certificatesigningrequest.certificates.k8s.io/{name}\n")
        requests.shown("\n")
        self.assertEqual(requests.take(1), ["enrol-b"])
        requests.shown("certificatesigningrequest.certificates.k8s.io/enrol-b\n")
        self.assertEqual(requests.take(9), ["enrol-a"])
        self.assertEqual(requests.take(9), [])


class Outcomes(unittest.TestCase):
    def test_each_token_has_an_outcome(self):
        text = f"{printed(worst=4)}\n{printed()}\n"
        self.assertEqual([one["worst"] for one in boards.outcomes(text, 2)], [4, 2.5])
        with self.assertRaises(SystemExit):
            boards.outcomes(printed(), 2)

    def test_failures_of_all_tokens_are_counted_by_reason(self):
        found = [json.loads(printed(failures={"no answer": 1, "429: too many": 2})), json.loads(printed(failures={"no answer": 3}))]
        self.assertEqual(boards.failures(found), "4 x no answer, 2 x 429: too many")
        self.assertEqual(boards.failures([json.loads(printed())]), "")
