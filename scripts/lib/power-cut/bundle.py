#!/usr/bin/env python3
"""Bundles of `edge-runtime upgrade`, made of programs that are there, for versions that differ from them.

    bundle.py FOLDER ARCH FILE VERSION KIND

KIND is `good` (the same programs with this VERSION, of as many letters as theirs, in place of theirs), or what the daemon does
instead of running: `crashes` or `hangs`."""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

PROGRAMS = ("edge-runtime", "edge-admin", "edge-devices", "edge-api", "edge-plugins")
RUN = {"crashes": "exit 3", "hangs": "exec sleep 98761"}


def of(program):
    """What a program says that it is."""
    return subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout.split()[1]


def renamed(data, old, new):
    """A version in a program is a few letters somewhere, directly behind any other text; in names of folders they are those of
    other crates."""
    assert len(old) == len(new), (old, new)
    return re.sub(rb"(?<!\.)" + re.escape(old.encode()) + rb"(?![/.\d])", new.encode(), data)


def main():
    folder, architecture, target, version, kind = sys.argv[1:]
    programs = {name: open(os.path.join(folder, name), "rb").read() for name in PROGRAMS}
    if kind == "good":
        old = of(os.path.join(folder, "edge-runtime"))
        programs = {name: renamed(data, old, version) for name, data in programs.items()}
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(programs["edge-runtime"])
        os.chmod(file.name, 0o755)
        says = of(file.name)
        os.remove(file.name)
        assert says == version, f"the program says {says}"
    else:
        script = (
            f'#!/bin/sh\ncase "$*" in version) echo edge-runtime {version}; exit ;; run*--print-config*) ;; run*) {RUN[kind]} ;; esac\n'
            'exec /usr/lib/edge-runtime/edge-runtime "$@"\n'
        )
        programs["edge-runtime"] = script.encode()
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in programs.items()}
    manifest = json.dumps({"version": version, "architecture": architecture, "files": sums}).encode()
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in [("manifest.json", manifest), *programs.items()]:
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(data), 0o755
            archive.addfile(about, io.BytesIO(data))


if __name__ == "__main__":
    main()
