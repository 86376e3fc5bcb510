"""Runs the tests of the pages' scripts (`*_test.js`) with Node.js, where it is installed. `./scripts/test quick` runs them."""
import glob
import os
import shutil
import subprocess
import tempfile
import unittest

REPOSITORY = os.path.join(os.path.dirname(__file__), "..", "..")
# A browser gets the files of both folders from one place.
FOLDERS = ["cloud-bridge/src/page", "edge-protocol/page/src"]


class PageScripts(unittest.TestCase):
    @unittest.skipUnless(shutil.which("node"), "node is not installed")
    def test_scripts_of_the_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in FOLDERS:
                for file in glob.glob(os.path.join(REPOSITORY, name, "*.js")):
                    shutil.copy(file, folder)
            with open(os.path.join(folder, "package.json"), "w") as file:
                file.write('{"type": "module"}')
            tests = sorted(glob.glob(os.path.join(folder, "*_test.js")))
            self.assertTrue(tests)
            done = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
