"""Tests of links.py, and the links of all pages. `./scripts/test quick` runs them."""
import os
import unittest

import links
import release

PAGES = {
    "a.md": "# Title\n[b](docs/b.md) [c](docs/b.md#the-end)\n## `x`: what it is\n[down](#x-what-it-is)\n",
    "docs/b.md": "# B\n[up](../a.md)\n## The end\n## The end\n",
}


def broken(more, path="docs/c.md"):
    pages = {**PAGES, path: more}
    return links.broken(pages, lambda name: name in pages or name == "docs")


class Links(unittest.TestCase):
    def test_links_between_pages_and_within_one(self):
        self.assertEqual(links.broken(PAGES, PAGES.__contains__), [])

    def test_missing_files_and_headings_are_found(self):
        self.assertEqual(broken("\n[x](d.md)"), ["docs/c.md:2: d.md: no such file"])
        self.assertEqual(broken("[x](b.md#start)"), ["docs/c.md:1: b.md#start: no such heading"])
        self.assertEqual(broken("[x](#start)"), ["docs/c.md:1: #start: no such heading"])

    def test_second_heading_of_a_name_has_a_number(self):
        self.assertEqual(broken("[x](b.md#the-end-1)"), [])
        self.assertEqual(len(broken("[x](b.md#the-end-2)")), 1)

    def test_code_and_other_addresses_are_left_alone(self):
        self.assertEqual(broken("`[x](d.md)`\n\n    [x](d.md)\n\n```\n[x](d.md)\n# no heading\n```\n[x](https://d.md)"), [])


class Pages(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        pages = release.pages()
        self.assertIn("README.md", pages)
        exists = lambda path: os.path.exists(os.path.join(release.REPO, path))
        self.assertEqual(links.broken(pages, exists), [])
