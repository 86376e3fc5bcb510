#!/usr/bin/env python3
"""OCI images without a builder, the same bytes for the same input.

oci.py manifest VERSION ARCH FOLDER PROGRAM...      what is in an upgrade, on standard output
oci.py image FILE VERSION KIND:ARCH:LAYER.tar...    an OCI image layout as an archive; several architectures as an index

ARCH is Go's name; `arm` is v7. KIND is `bridge` (cloud-bridge, which runs) or `upgrade` (programs to be taken out)."""
import datetime
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
CREATED = datetime.datetime.fromtimestamp(EPOCH, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
MEDIA = "application/vnd.oci.image."
RUN = {
    "bridge": {
        "User": "65532:65532",
        "Entrypoint": ["/cloud-bridge"],
        "Cmd": ["--help"],
        "ExposedPorts": {"7443/tcp": {}},
        "WorkingDir": "/",
    },
    "upgrade": {"WorkingDir": "/"},
}
TITLES = {"bridge": "cloud-bridge", "upgrade": "edge-runtime"}


def text(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def upgrade_manifest(version, architecture, folder, programs):
    sums = {}
    for program in programs:
        with open(os.path.join(folder, program), "rb") as file:
            sums[program] = hashlib.file_digest(file, "sha256").hexdigest()
    print(json.dumps({"version": version, "architecture": architecture, "files": sums}, indent=2))


class Layout:
    """An image layout (OCI image specification, image-layout.md) that grows in memory."""

    def __init__(self):
        self.blobs = {}

    def add(self, data, media, **more):
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return {"mediaType": media, "digest": "sha256:" + digest, "size": len(data), **more}

    def image(self, kind, architecture, layer_file, version):
        with open(layer_file, "rb") as file:
            layer = file.read()
        packed = io.BytesIO()
        # Without name and time in its head, as gzip -n.
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0, compresslevel=9) as out:
            out.write(layer)
        platform = {"architecture": architecture, "os": "linux"}
        if architecture == "arm":
            platform["variant"] = "v7"
        labels = {
            "org.opencontainers.image.title": TITLES[kind],
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.licenses": "Apache-2.0",
        }
        config = {
            **platform,
            "created": CREATED,
            "config": {**RUN[kind], "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
            "history": [{"created": CREATED, "created_by": "scripts/package"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MEDIA + "manifest.v1+json",
            "config": self.add(text(config), MEDIA + "config.v1+json"),
            "layers": [self.add(packed.getvalue(), MEDIA + "layer.v1.tar+gzip")],
            "annotations": labels,
        }
        return self.add(text(manifest), MEDIA + "manifest.v1+json", platform=platform)

    def write(self, path, descriptors, version):
        if len(descriptors) > 1:
            index = {"schemaVersion": 2, "mediaType": MEDIA + "index.v1+json", "manifests": descriptors}
            descriptors = [self.add(text(index), MEDIA + "index.v1+json")]
        top = {**descriptors[0], "annotations": {"org.opencontainers.image.ref.name": version}}
        files = {
            "oci-layout": text({"imageLayoutVersion": "1.0.0"}),
            "index.json": text({"schemaVersion": 2, "mediaType": MEDIA + "index.v1+json", "manifests": [top]}),
        }
        files.update({f"blobs/sha256/{digest}": data for digest, data in self.blobs.items()})
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as out:
            for folder in ("blobs", "blobs/sha256"):
                self.entry(out, folder, None)
            for name in sorted(files):
                self.entry(out, name, files[name])

    @staticmethod
    def entry(out, name, data):
        info = tarfile.TarInfo(name)
        info.mtime = EPOCH
        if data is None:
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            out.addfile(info)
        else:
            info.size, info.mode = len(data), 0o644
            out.addfile(info, io.BytesIO(data))


def main():
    verb, *words = sys.argv[1:]
    if verb == "manifest":
        upgrade_manifest(*words[:3], words[3:])
        return
    path, version, *images = words
    layout = Layout()
    layout.write(path, [layout.image(*image.split(":", 2), version) for image in images], version)


main()
