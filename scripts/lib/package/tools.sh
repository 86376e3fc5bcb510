# What all parts of scripts/package share: equal archives, names of architectures. Sourced after common.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# Everything that holds a time holds that of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(source_time)}
export SOURCE_DATE_EPOCH
version=${PACKAGE_VERSION:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$repo/Cargo.toml")}

# Debian's name of an architecture as Cargo and as Go know it.
triple_of() {
    case "$1" in
        amd64) echo x86_64-unknown-linux-gnu ;;
        arm64) echo aarch64-unknown-linux-gnu ;;
        armhf) echo armv7-unknown-linux-gnueabihf ;;
    esac
}
cross_of() { case "$1" in amd64) echo x86_64 ;; arm64) echo aarch64 ;; armhf) echo armv7 ;; esac; }
go_of() { case "$1" in armhf) echo arm ;; *) echo "$1" ;; esac; }

# What runs programs of that architecture here; nothing if this host does.
emulator_of() {
    case "$1-$(dpkg --print-architecture)" in
        amd64-amd64 | arm64-arm64 | armhf-armhf) ;;
        arm64-*) echo qemu-aarch64-static ;;
        armhf-*) echo qemu-arm-static ;;
        amd64-*) echo qemu-x86_64-static ;;
    esac
}

# A program of that architecture, here.
emulated() {
    local emulator; emulator=$(emulator_of "$1"); shift
    $emulator "$@"
}

# equal_tar FILE FOLDER [NAME...]: the same bytes for the same files.
equal_tar() {
    local file=$1 folder=$2; shift 2
    [ "$#" -gt 0 ] || set -- .
    tar -C "$folder" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -cf "$file" "$@"
}

# put MODE TARGET <CONTENTS
put() { mkdir -p "$(dirname "$2")"; cat >"$2"; chmod "$1" "$2"; }
# put_gz TARGET <CONTENTS
put_gz() { mkdir -p "$(dirname "$1")"; gzip -9n >"$1"; chmod 644 "$1"; }
