"""Tests of release.py. `./scripts/test quick` runs them."""
import io
import os
import re
import tarfile
import tempfile
import unittest

import release

MANIFEST = '[workspace.package]\nversion = "0.2.0"\nrust-version = "1.95"\n'
LOCK = """
[[package]]
name = "edge-runtime"
version = "0.2.0"

[[package]]
name = "serde"
version = "1.0.9"
source = "registry+https://github.com/rust-lang/crates.io-index"
"""
CHART = 'apiVersion: v2\nversion: 0.2.0\nappVersion: "0.2.0"\n'
README = "# Sampan\n\n## Status\n\nVersion 0.2.0, a pre-release.\n"
CHANGELOG = "# Changelog\n\nIntro.\n\n## 0.2.0 (2026-11-28)\n\n### Added\n- A thing.\n\n## 0.1.0\n\n- Older.\n"


class Versions(unittest.TestCase):
    def differing(self, manifest=MANIFEST, lock=LOCK, chart=CHART, changelog=CHANGELOG, readme=README):
        return release.differing(release.versions(manifest, lock, chart, changelog, readme))

    def test_one_version_everywhere_is_right(self):
        self.assertEqual(self.differing(), [])

    def test_each_place_that_differs_is_named(self):
        self.assertEqual(self.differing(lock=LOCK.replace("0.2.0", "0.1.0")), ["Cargo.lock, edge-runtime: version 0.1.0, Cargo.toml has 0.2.0"])
        self.assertIn("Chart.yaml, appVersion: version 0.1.0", self.differing(chart=CHART.replace('"0.2.0"', "0.1.0"))[0])
        self.assertIn("newest section: version Unreleased", self.differing(changelog="## Unreleased\n" + CHANGELOG)[0])
        self.assertIn("README.md, Status: version none", self.differing(readme="# Sampan\n")[0])

    def test_pages_name_no_files_of_an_older_version(self):
        pages = {"docs/a.md": "edge-runtime_0.1.0_arm64.tar, cloud-bridge-0.2.0.tgz, edge-runtime_0.10.0_arm64.tar, runc-0.0.1",
                 "CHANGELOG.md": "sampan-0.1.0.tar.gz"}
        self.assertEqual(release.outdated(pages, "0.2.0"), ["docs/a.md: names a file of version 0.1.0, this is 0.2.0"])

    def test_oldest_rust_is_the_same_for_cargo_and_scripts(self):
        self.assertEqual(release.toolchains(MANIFEST, "a=b\nrust_minimum=1.95\n"), [])
        self.assertEqual(len(release.toolchains(MANIFEST, "rust_minimum=1.90\n")), 1)


class Notes(unittest.TestCase):
    def test_notes_have_the_newest_section_alone(self):
        text = release.notes(CHANGELOG, "0123456789ab")
        self.assertTrue(text.startswith("# Sampan 0.2.0\n\n### Added\n- A thing.\n\n## Check"), text)
        self.assertNotIn("Older", text)
        self.assertIn("Commit 0123456789ab.", text)

    def test_links_within_the_repository_become_text(self):
        changelog = "## 1.0.0\n- Sites ([docs/site.md](docs/site.md#a)), [web](https://example.com).\n"
        self.assertIn("- Sites (docs/site.md), [web](https://example.com).", release.notes(changelog, "0"))

    def test_changelog_without_sections_is_refused(self):
        self.assertRaises(ValueError, release.newest, "# Changelog\n")


class Files(unittest.TestCase):
    def test_missing_and_foreign_files_are_named(self):
        names = release.expected("0.2.0") | release.SUMS
        self.assertEqual(release.incomplete(names, "0.2.0"), [])
        self.assertEqual(release.incomplete(names - {"cloud-bridge-0.2.0.tgz"}, "0.2.0"), ["cloud-bridge-0.2.0.tgz: missing"])
        self.assertEqual(release.incomplete(names | {"key.pem"}, "0.2.0"), ["key.pem: not part of a release"])

    def test_digest_is_that_of_the_one_image(self):
        with tempfile.TemporaryDirectory() as folder:
            for manifests, wanted in (['[{"digest": "sha256:0a"}]', "sha256:0a"], ["[]", None]):
                archive, index = os.path.join(folder, "a.oci.tar"), f'{{"manifests": {manifests}}}'.encode()
                with tarfile.open(archive, "w") as tar:
                    entry = tarfile.TarInfo("index.json")
                    entry.size = len(index)
                    tar.addfile(entry, io.BytesIO(index))
                if wanted:
                    self.assertEqual(release.digest(archive), wanted)
                else:
                    self.assertRaises(ValueError, release.digest, archive)

    def test_page_about_releases_names_each_kind_of_file(self):
        page = release.read("docs/release.md")
        rows = set(re.findall(r"`([^`]+)`", "".join(line for line in page.splitlines() if line.startswith("| `"))))
        for name in (*release.OF_EACH, *release.OF_ALL):
            self.assertIn(name.format(version="VERSION", arch="ARCH"), rows)


class Repository(unittest.TestCase):
    def test_versions_of_this_tree_are_equal(self):
        found = release.versions(
            release.read("Cargo.toml"), release.read("Cargo.lock"), release.read("deploy/helm/cloud-bridge/Chart.yaml"),
            release.read("CHANGELOG.md"), release.read("README.md"),
        )
        # Between releases the newest section has no version yet.
        found = {place: version for place, version in found.items() if version != "Unreleased"}
        self.assertEqual(release.differing(found), [])
        self.assertEqual(release.toolchains(release.read("Cargo.toml"), release.read("scripts/lib/common.sh")), [])
