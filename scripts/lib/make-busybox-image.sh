#!/bin/sh
# Makes a docker archive of the host's static busybox, so that a node without a registry has an image to run.
# usage: make-busybox-image.sh OUT.tar [NAME:TAG]   (default docker.io/library/busybox:latest)
# Needs coreutils, tar and a static /bin/busybox (Debian: busybox-static); BUSYBOX names another one and
# ARCH its Go architecture (arm64, arm), for the image of a foreign board.
set -eu

out=${1:?usage: make-busybox-image.sh OUT.tar [NAME:TAG]}
name=${2:-docker.io/library/busybox:latest}
busybox=${BUSYBOX:-/bin/busybox}
[ -x "$busybox" ] || { echo "make-busybox-image: $busybox is not there; install busybox-static" >&2; exit 1; }
case ${ARCH:-$(uname -m)} in
    x86_64 | amd64) arch=amd64 variant= ;;
    aarch64 | arm64) arch=arm64 variant=v8 ;;
    armv6*) arch=arm variant=v6 ;;
    arm*) arch=arm variant=v7 ;;
    *) arch=${ARCH:-$(uname -m)} variant= ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root/bin" "$root/etc" "$root/root" "$root/home" "$root/proc" "$root/sys" "$root/dev" \
    "$root/tmp" "$root/var/tmp" "$root/run" "$root/usr"
chmod 0755 "$root"
chmod 0700 "$root/root"
chmod 1777 "$root/tmp" "$root/var/tmp"
ln -s ../bin "$root/usr/bin"
ln -s ../bin "$root/usr/sbin"
ln -s bin "$root/sbin"
cp "$busybox" "$root/bin/busybox"
chmod 0755 "$root/bin/busybox"
# The list of a foreign binary cannot be asked for; the host's is close enough.
list=$("$busybox" --list 2>/dev/null || /bin/busybox --list)
for applet in $list; do
    [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
# Debian's busybox 1.35 has no time-outs in wget and crashes on -T. Nothing listens at port 1: a sound wget ends with 1 there.
sound=0
"$busybox" wget -T 5 -q -O - http://127.0.0.1:1/ >/dev/null 2>&1 || sound=$?
if [ "$sound" != 1 ]; then
    rm -f "$root/bin/wget"
    cat >"$root/bin/wget" <<'WGET'
#!/bin/sh
# busybox wget without -T, which crashes it: timeout bounds the whole request instead. Within its own shell busybox runs
# its wget and not this file, unless it is called by its path.
seconds= last=
for word; do
    shift
    if [ "$last" = -T ]; then
        seconds=$word last=
        continue
    fi
    case $word in
        -T) last=-T ;;
        -[cqS]T) last=-T; set -- "$@" "${word%T}" ;;
        -T?*) seconds=${word#-T} ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec ${seconds:+timeout "$seconds"} /bin/busybox wget "$@"
WGET
    chmod 0755 "$root/bin/wget"
fi
cat >"$root/etc/passwd" <<PASSWD
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
PASSWD
cat >"$root/etc/group" <<GROUP
root:x:0:
daemon:x:1:
tty:x:5:
www-data:x:33:
users:x:100:
nobody:x:65534:
GROUP

# Same input, same bytes: a second run makes the same image id.
pack() { tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -C "$1" -cf "$2" .; }
mkdir "$work/image"
pack "$root" "$work/image/layer.tar"
diff_id=$(sha256sum "$work/image/layer.tar" | cut -d' ' -f1)
config="{\"architecture\":\"$arch\",${variant:+\"variant\":\"$variant\",}\"os\":\"linux\",\"created\":\"1970-01-01T00:00:00Z\","
config="$config\"config\":{\"Env\":[\"PATH=/bin:/usr/bin:/sbin:/usr/sbin\"],\"Cmd\":[\"sh\"]},"
config="$config\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$diff_id\"]}}"
printf '%s' "$config" >"$work/image/config.json"
id=$(sha256sum "$work/image/config.json" | cut -d' ' -f1)
mv "$work/image/config.json" "$work/image/$id.json"
mkdir "$work/image/$diff_id"
mv "$work/image/layer.tar" "$work/image/$diff_id/layer.tar"
printf '[{"Config":"%s.json","RepoTags":["%s"],"Layers":["%s/layer.tar"]}]' "$id" "$name" "$diff_id" >"$work/image/manifest.json"
pack "$work/image" "$work/out.tar"
mv "$work/out.tar" "$out"
