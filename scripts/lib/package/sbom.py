#!/usr/bin/env python3
"""What is in a package's programs, as SPDX 2.3: sbom.py NAME VERSION TRIPLE CRATE...

Crates that Cargo builds into them for this target, with the sums of Cargo.lock, and which needs which. The same bytes for
the same tree: no time but SOURCE_DATE_EPOCH, no random name."""
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib

name, version, triple, *roots = sys.argv[1:]


def cargo(*words):
    return subprocess.run(["cargo", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


# The features that each build has decide what is in it: one tree for each program.
inside = set()
for root in roots:
    tree = cargo("tree", "--locked", "-p", root, "--target", triple, "-e", "normal", "--prefix", "none", "-f", "{p}")
    inside |= {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", triple))
packages = {p["id"]: p for p in metadata["packages"] if (p["name"], "v" + p["version"]) in inside}
with open("Cargo.lock", "rb") as lock:
    sums = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.load(lock)["package"]}


def spdx_id(package):
    return "SPDXRef-Package-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{package['name']}-{package['version']}")


def licence(package):
    # `MIT/Apache-2.0` is how Cargo wrote "or" once.
    return " ".join((package["license"] or "NOASSERTION").replace("/", " OR ").split())


def described(package):
    said = {
        "SPDXID": spdx_id(package),
        "name": package["name"],
        "versionInfo": package["version"],
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence(package),
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "LIBRARY",
    }
    if package["source"]:
        said["downloadLocation"] = f"https://crates.io/api/v1/crates/{package['name']}/{package['version']}/download"
        locator = f"pkg:cargo/{package['name']}@{package['version']}"
        said["externalRefs"] = [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}
        ]
        checksum = sums[(package["name"], package["version"])]
        said["checksums"] = [{"algorithm": "SHA256", "checksumValue": checksum}]
    return said


# C that crates bring along, with what says its version; and what a static program has of the system's library.
BUNDLED = {
    "libsqlite3-sys": ("sqlite", "sqlite3/sqlite3.h", r'#define SQLITE_VERSION +"([^"]+)"', "blessing"),
    "libnghttp2-sys": ("nghttp2", "nghttp2/configure.ac", r"AC_INIT\(\[nghttp2\], \[([^\]]+)\]", "MIT"),
}


def bundled(library, version, licence):
    return {
        "SPDXID": f"SPDXRef-Package-C-{library}",
        "name": library,
        "versionInfo": version,
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "LIBRARY",
    }


def bundled_in(package):
    library, file, pattern, licence = BUNDLED[package["name"]]
    with open(os.path.join(os.path.dirname(package["manifest_path"]), file), encoding="utf-8") as text:
        return bundled(library, re.search(pattern, text.read()).group(1), licence)


whole = {
    "SPDXID": "SPDXRef-Package",
    "name": name,
    "versionInfo": version,
    "supplier": "Organization: Sampan developers",
    "downloadLocation": "NOASSERTION",
    "filesAnalyzed": False,
    "licenseConcluded": "NOASSERTION",
    "licenseDeclared": "Apache-2.0",
    "copyrightText": "NOASSERTION",
    "primaryPackagePurpose": "APPLICATION",
}
relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package")]
relations += [("SPDXRef-Package", "CONTAINS", spdx_id(p)) for p in packages.values() if p["name"] in roots]
for node in metadata["resolve"]["nodes"]:
    if node["id"] not in packages:
        continue
    for dependency in node["deps"]:
        normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
        if normal and dependency["pkg"] in packages:
            relations.append((spdx_id(packages[node["id"]]), "DEPENDS_ON", spdx_id(packages[dependency["pkg"]])))
native = [bundled("glibc", "NOASSERTION", "LGPL-2.1-or-later")]
relations.append(("SPDXRef-Package", "STATIC_LINK", native[0]["SPDXID"]))
for package in packages.values():
    if package["name"] in BUNDLED:
        native.append(bundled_in(package))
        relations.append((spdx_id(package), "CONTAINS", native[-1]["SPDXID"]))
described_all = sorted([*(described(p) for p in packages.values()), *native], key=lambda p: p["SPDXID"])
digest = hashlib.sha256(json.dumps([name, version, triple, described_all]).encode()).hexdigest()
created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
document = {
    "spdxVersion": "SPDX-2.3",
    "dataLicense": "CC0-1.0",
    "SPDXID": "SPDXRef-DOCUMENT",
    "name": f"{name}-{version}-{triple}",
    "documentNamespace": f"https://sampan.dev/spdx/{name}-{version}-{triple}-{digest}",
    "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Organization: Sampan developers"]},
    "packages": [whole, *described_all],
    "relationships": [
        {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in sorted(set(relations))
    ],
}
json.dump(document, sys.stdout, indent=1, sort_keys=True)
print()
