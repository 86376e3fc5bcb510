# Shared by the scripts: saying what happens, installing what is missing, starting and ending our own processes.
# Sourced, never run.
# shellcheck shell=bash

set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$repo"
# Where the scripts look for what they build, whatever the user's Cargo is told elsewhere.
export CARGO_TARGET_DIR=$repo/target

say() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# A step whose output matters only when it fails.
quietly() {
    local log; log=$(mktemp)
    if "$@" >"$log" 2>&1; then rm -f "$log"; else cat "$log" >&2; rm -f "$log"; fail "$* failed"; fi
}

need_root() { [ "$(id -u)" = 0 ] || fail "needs root: containers, mounts and network namespaces (sudo $0 $*)"; }

apt_updated=
# need COMMAND PACKAGE: installs the Debian package unless the command is there.
need() {
    command -v "$1" >/dev/null 2>&1 && return
    local what=$1
    # A library has no command.
    case "$what" in no-such-command-*) what=$2 ;; esac
    command -v apt-get >/dev/null 2>&1 || fail "$what is missing and this is no Debian host: install $2 by hand"
    [ "$(id -u)" = 0 ] || fail "$what is missing: install the package $2 (or run as root)"
    if [ -z "$apt_updated" ]; then say "updating the package list"; apt-get update -qq || say "apt-get update had errors; trying with what it got"; apt_updated=1; fi
    say "installing $2"
    quietly env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$2"
}

rust_minimum=1.95
# A Rust toolchain new enough: what is there (rustup's first), else Debian's backported one.
need_rust() {
    [ -x "$HOME/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH"
    need gcc gcc
    [ -e /usr/include/stdio.h ] || need no-such-command-libc libc6-dev
    if ! rust_is_new_enough; then
        local help="Rust $rust_minimum or newer is needed: install it with rustup (https://rustup.rs)"
        # Not every Debian has them; in a shell of its own, for `need` ends the one that it is in.
        (need no-such-command-rustc rustc-web && need no-such-command-cargo cargo-web) || fail "$help"
        hash -r
        rust_is_new_enough || fail "$help"
    fi
}

rust_is_new_enough() {
    command -v cargo >/dev/null 2>&1 && command -v rustc >/dev/null 2>&1 || return 1
    local have; have=$(rustc --version | awk '{print $2}')
    [ "$(printf '%s\n%s\n' "$rust_minimum" "$have" | sort -V | head -n 1)" = "$rust_minimum" ]
}

# Formatter and linter of the toolchain, which Debian has in packages of their own.
need_lints() {
    need cargo-fmt rustfmt-web
    need cargo-clippy rust-web-clippy
    # rustup has both programs in its folder, also without the components that they start.
    if ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
        fail "rustfmt or clippy is missing: rustup component add rustfmt clippy"
    fi
}

# commit: the first 12 digits of this tree's commit, with -dirty if files differ from it. Nothing without git, also in an archive
# that was unpacked within another repository.
commit() {
    [ -e "$repo/.git" ] || return 0
    local id; id=$(git -C "$repo" rev-parse HEAD 2>/dev/null) || return 0
    if git -C "$repo" diff --quiet HEAD 2>/dev/null; then echo "${id:0:12}"; else echo "${id:0:12}-dirty"; fi
}

# source_time: when this source was committed, in seconds since 1970. Without git the time of its files, which is the same in an
# archive of a release.
source_time() {
    if [ -e "$repo/.git" ]; then git -C "$repo" log -1 --format=%ct; else stat -c %Y "$repo/Cargo.toml"; fi
}

# The programs for users, side by side in target/release. The node's abort on panic, for its size; the bridge's unwinds,
# so that a panic ends one connection and not those of all nodes.
build_release() {
    cargo build --release --locked -p edge-runtime
    cargo build --release --locked -p sampan-admin -p sampan-launcher
    # By itself: together they would have each other's features.
    cargo build --release --locked -p sampan-devices
    cargo build --release --locked -p sampan-api
    cargo build --release --locked -p sampan-plugins
    cargo build --profile bridge --locked -p cloud-bridge
    ln -f target/bridge/cloud-bridge target/release/cloud-bridge
}

# The same programs to be tried, side by side in target/fast: the optimization of whole programs takes most of the time of
# build_release.
build_to_try() {
    cargo build --profile fast --locked -p edge-runtime -p sampan-admin -p sampan-launcher -p sampan-devices -p sampan-api -p sampan-plugins -p cloud-bridge
}

# What running pods on this host takes.
need_runtime() {
    need runc runc
    need ip iproute2
    need nft nftables
    [ -x /bin/busybox ] || need busybox busybox-static
}

need_kubectl() { need kubectl kubernetes-client; }

# start NAME LOG COMMAND...: starts a process of ours in the background unless it runs; remembers its pid and start time.
start() {
    local name=$1 log=$2 pids=$3; shift 3
    if running "$pids/$name"; then return; fi
    setsid "$@" >>"$log" 2>&1 </dev/null &
    local pid=$!
    printf '%s %s\n' "$pid" "$(start_time "$pid")" >"$pids/$name"
}

# Field 22 of /proc/PID/stat: with it a recycled pid is never taken for ours.
# Nothing for a process that has ended and only waits to be reaped.
start_time() { awk '{sub(/.*\) /, ""); if ($1 != "Z" && $1 != "X") print $20}' "/proc/$1/stat" 2>/dev/null || true; }

running() {
    local pid began
    # A trap may come amid an `IFS= read` of another function, and then has its IFS.
    [ -s "$1" ] && IFS=' ' read -r pid began <"$1" && [ -n "$began" ] && [ "$(start_time "$pid")" = "$began" ]
}

# end PIDFILE: SIGTERM, then SIGKILL after ten seconds.
end() {
    local pid began tries
    if running "$1"; then
        IFS=' ' read -r pid began <"$1"
        kill "$pid" 2>/dev/null || true
        for ((tries = 0; tries < 100; tries++)); do running "$1" || break; sleep 0.1; done
        running "$1" && kill -9 "$pid" 2>/dev/null || true
    fi
    rm -f "$1"
}

# wait_for SECONDS WHAT COMMAND...: polls until the command succeeds.
wait_for() {
    local deadline=$((SECONDS + $1)) what=$2; shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.1
    done
    : "$what"
}
