"""Tests of waiting for files and for changes. `./scripts/test quick` runs them."""
import os
import tempfile
import threading
import unittest

import news
from arrivals import Arrivals


class Files(unittest.TestCase):
    def test_files_are_seen_at_every_level(self):
        with tempfile.TemporaryDirectory() as top:
            os.makedirs(f"{top}/run/boxes/early")
            open(f"{top}/run/boxes/early/pid", "w").close()
            arrivals = Arrivals(top, "run", "boxes", "*", "pid")
            self.assertTrue(arrivals.until(1, 0))
            self.assertFalse(arrivals.until(2, 0.01))
            os.mkdir(f"{top}/run/boxes/late")
            open(f"{top}/run/boxes/late/.pid", "w").close()
            self.assertFalse(arrivals.until(2, 0.05))
            os.rename(f"{top}/run/boxes/late/.pid", f"{top}/run/boxes/late/pid")
            self.assertTrue(arrivals.until(2, 5))
            arrivals.close()

    def test_folders_may_come_later(self):
        with tempfile.TemporaryDirectory() as top:
            arrivals = Arrivals(top, "run", "*", "pid")
            threading.Timer(0.05, lambda: (os.makedirs(f"{top}/run/a"), open(f"{top}/run/a/pid", "w").close())).start()
            self.assertTrue(arrivals.until(1, 5))
            arrivals.close()


class News(unittest.TestCase):
    def test_told_change_ends_the_wait(self):
        seen = []
        threading.Timer(0.01, lambda: (seen.append(1), news.tell())).start()
        self.assertEqual(news.until(5, lambda: seen and seen[0]), 1)

    def test_limit_ends_the_wait(self):
        self.assertIsNone(news.until(0.01, lambda: False))
