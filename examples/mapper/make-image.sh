#!/bin/sh
# Makes a docker archive of one static program and nothing else: same input, same bytes.
# usage: make-image.sh OUT.tar EDGE-MAPPER [NAME:TAG]   (default docker.io/library/edge-mapper:latest)
# ARCH is the program's Go architecture (amd64, arm64, arm), if it is not this host's.
set -eu

out=${1:?usage: make-image.sh OUT.tar EDGE-MAPPER [NAME:TAG]}
program=${2:?usage: make-image.sh OUT.tar EDGE-MAPPER [NAME:TAG]}
name=${3:-docker.io/library/edge-mapper:latest}
if grep -aq '/ld-linux' "$program"; then
    echo "make-image: $program needs libraries that the image does not have: build it static" >&2
    exit 1
fi
case ${ARCH:-$(uname -m)} in
    x86_64 | amd64) arch=amd64 variant= ;;
    aarch64 | arm64) arch=arm64 variant=v8 ;;
    armv6*) arch=arm variant=v6 ;;
    arm*) arch=arm variant=v7 ;;
    *) arch=${ARCH:-$(uname -m)} variant= ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/root" "$work/image"
chmod 0755 "$work/root"
cp "$program" "$work/root/edge-mapper"
chmod 0755 "$work/root/edge-mapper"
pack() { tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -C "$1" -cf "$2" .; }
pack "$work/root" "$work/layer.tar"
diff_id=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
config="{\"architecture\":\"$arch\",${variant:+\"variant\":\"$variant\",}\"os\":\"linux\",\"created\":\"1970-01-01T00:00:00Z\","
config="$config\"config\":{\"Entrypoint\":[\"/edge-mapper\"]},"
config="$config\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$diff_id\"]}}"
printf '%s' "$config" >"$work/config.json"
id=$(sha256sum "$work/config.json" | cut -d' ' -f1)
mv "$work/config.json" "$work/image/$id.json"
mkdir "$work/image/$diff_id"
mv "$work/layer.tar" "$work/image/$diff_id/layer.tar"
printf '[{"Config":"%s.json","RepoTags":["%s"],"Layers":["%s/layer.tar"]}]' "$id" "$name" "$diff_id" >"$work/image/manifest.json"
pack "$work/image" "$work/out.tar"
mv "$work/out.tar" "$out"
