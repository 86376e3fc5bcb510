#!/usr/bin/env python3
"""What a release must fulfil, and its notes: release.py check | notes COMMIT | complete FOLDER | digest ARCHIVE.

check: one version everywhere, no files of older ones in pages, links that lead somewhere. notes: the newest section of CHANGELOG.md. complete: all files are in the
folder and no other. digest: of the image in an OCI archive, as a registry names it. Exit code 1 and a sentence for each problem. `./scripts/release` calls it."""
import json
import os
import re
import sys
import tarfile
import tomllib

import links

REPO = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
ARCHITECTURES = ("amd64", "arm64", "armhf")
OF_EACH = (
    "edge-runtime_{version}-1_{arch}.deb",
    "cloud-bridge_{version}-1_{arch}.deb",
    "edge-runtime-{version}-{arch}.tar.gz",
    "edge-runtime_{version}_{arch}.tar",
    "edge-runtime_{version}_{arch}.tar.sig",
    "edge-runtime_{version}_{arch}.oci.tar",
    "edge-runtime_{version}_{arch}.oci.tar.sig",
    "edge-runtime_{version}_{arch}.spdx.json",
    "cloud-bridge_{version}_{arch}.spdx.json",
)
OF_ALL = (
    "cloud-bridge_{version}.oci.tar",
    "cloud-bridge-{version}.tgz",
    "sampan-{version}.tar.gz",
    "RELEASE_NOTES.md",
    "release-key.pem",
)
# A package, archive, image or chart with its version, as pages name it.
FILE = re.compile(r"\b(?:edge-runtime|cloud-bridge|sampan)[_-](\d+\.\d+\.\d+)(?!\d)")
# Made from all others.
SUMS = {"SHA256SUMS", "SHA256SUMS.sig"}


def read(path):
    with open(os.path.join(REPO, path), encoding="utf-8") as file:
        return file.read()


def pages():
    """Text of each Markdown page of the repository by its path."""
    found = {}
    for folder, below, names in os.walk(REPO):
        # What is built or fetched.
        below[:] = [name for name in below if name != "target" and not name.startswith(".")]
        for name in names:
            if name.endswith(".md"):
                path = os.path.relpath(os.path.join(folder, name), REPO)
                found[path] = read(path)
    return found


def newest(changelog):
    """Version of the newest section of the changelog (`## 0.1.0` or `## 0.1.0 (2026-01-31)`) and its text."""
    parts = re.split(r"^## ", changelog, flags=re.M)
    if len(parts) < 2:
        raise ValueError("CHANGELOG.md: no section (`## VERSION`)")
    heading, _, text = parts[1].partition("\n")
    return heading.split()[0], text.strip()


def versions(manifest, lock, chart, changelog, readme):
    """Version by the place that has it."""
    found = {"Cargo.toml": tomllib.loads(manifest)["workspace"]["package"]["version"]}
    own = [package for package in tomllib.loads(lock)["package"] if "source" not in package]
    found.update({f"Cargo.lock, {package['name']}": package["version"] for package in own})
    for key in ("version", "appVersion"):
        line = re.search(rf"^{key}: *[\"']?([^\"'\s]+)", chart, re.M)
        found[f"Chart.yaml, {key}"] = line[1] if line else "none"
    found["CHANGELOG.md, newest section"] = newest(changelog)[0]
    line = re.search(r"^Version (\d+\.\d+\.\d+)", readme, re.M)
    found["README.md, Status"] = line[1] if line else "none"
    return found


def differing(found):
    """Sentences about places that have another version than Cargo.toml."""
    wanted = found["Cargo.toml"]
    return [f"{place}: version {version}, Cargo.toml has {wanted}" for place, version in found.items() if version != wanted]


def outdated(pages, version):
    """Sentences about files of releases that pages name with an older version. A newer one is an example of an upgrade."""
    number = lambda text: tuple(map(int, text.split(".")))
    return [
        f"{path}: names a file of version {named}, this is {version}"
        for path, text in sorted(pages.items())
        if path not in ("CHANGELOG.md", "docs/history.md")
        for named in sorted(set(FILE.findall(text)))
        if number(named) < number(version)
    ]


def toolchains(manifest, common):
    """Sentences about the oldest Rust, which Cargo and the scripts check."""
    cargo = tomllib.loads(manifest)["workspace"]["package"]["rust-version"]
    scripts = re.search(r"^rust_minimum=(\S+)", common, re.M)[1]
    return [] if cargo == scripts else [f"scripts/lib/common.sh: rust_minimum {scripts}, Cargo.toml has rust-version {cargo}"]


def expected(version):
    """Names of all files of a release, but the sums."""
    each = {name.format(version=version, arch=arch) for name in OF_EACH for arch in ARCHITECTURES}
    return each | {name.format(version=version) for name in OF_ALL}


def incomplete(names, version):
    """Sentences about files that are missing or too many."""
    names, wanted = set(names) - SUMS, expected(version)
    return [f"{name}: missing" for name in sorted(wanted - names)] + [
        f"{name}: not part of a release" for name in sorted(names - wanted)
    ]


def notes(changelog, commit):
    """Release notes: the newest section, and how to check the files."""
    version, text = newest(changelog)
    # Links within the repository lead nowhere from a page of releases.
    text = re.sub(r"\[([^]]*)\]\((?![a-z]+:)[^)]*\)", r"\1", text)
    return (
        f"# Sampan {version}\n\n{text}\n\n## Check the files\n\nCommit {commit}. Compare `release-key.pem` with the key of an "
        "earlier release, then:\n\n"
        "    openssl pkeyutl -verify -rawin -pubin -inkey release-key.pem -in SHA256SUMS -sigfile SHA256SUMS.sig\n"
        "    sha256sum -c --ignore-missing SHA256SUMS\n"
    )


def digest(archive):
    """Digest of the one image in an OCI archive."""
    with tarfile.open(archive) as tar, tar.extractfile("index.json") as index:
        (image,) = json.load(index)["manifests"]
    return image["digest"]


def problems():
    manifest = read("Cargo.toml")
    chart = read("deploy/helm/cloud-bridge/Chart.yaml")
    found, texts = versions(manifest, read("Cargo.lock"), chart, read("CHANGELOG.md"), read("README.md")), pages()
    return (
        differing(found)
        + outdated(texts | {path: read(path) for path in ("examples/cloud-init.yaml",)}, found["Cargo.toml"])
        + toolchains(manifest, read("scripts/lib/common.sh"))
        + links.broken(texts, lambda path: os.path.exists(os.path.join(REPO, path)))
    )


def main(verb, *words):
    if verb == "notes":
        print(notes(read("CHANGELOG.md"), words[0]), end="")
        return
    if verb == "digest":
        print(digest(words[0]))
        return
    found = problems() if verb == "check" else incomplete(os.listdir(words[0]), newest(read("CHANGELOG.md"))[0])
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
