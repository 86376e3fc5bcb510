#!/bin/sh
# Installs edge-runtime on a board without dpkg. Run it as root in the unpacked folder of the archive.
#   ./install.sh            install programs in /usr and a service for systemd, OpenRC or /etc/init.d
#   ./install.sh remove     end pods and uninstall; state stays
#   ./install.sh purge      also delete state and configuration
# DESTDIR=DIR installs below DIR and starts nothing. Running it again upgrades; pods go on.
set -eu
cd "$(dirname "$0")"
root=${DESTDIR:-}
say() { printf '%s\n' "$*"; }
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

[ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "needs root"
# With DESTDIR the programs run on another board.
case "$root$(uname -m)" in
    armv6*) fail "this board has an ARMv6 processor, and the programs need ARMv7 (Raspberry Pi 2 or newer)" ;;
esac

# What runs here; with DESTDIR, what is there.
if [ -d "$root/run/systemd/system" ] || { [ -n "$root" ] && [ -e "$root/lib/systemd/systemd" ]; }; then
    init=systemd
elif [ -e "$root/sbin/openrc-run" ] || [ -e "$root/usr/sbin/openrc-run" ]; then
    init=openrc
else
    init=script
fi

# put MODE FILE TARGET: whole or not at all, over a program that runs.
put() {
    mkdir -p "$root$(dirname "$3")"
    cp "$2" "$root$3.new"
    chmod "$1" "$root$3.new"
    # A power cut must not leave a name without its bytes: what starts the node would be empty.
    sync "$root$3.new" 2>/dev/null || sync
    mv -f "$root$3.new" "$root$3"
}
# As dpkg does with configuration: what was changed stays.
put_config() { if [ -e "$root$2" ]; then put 644 "$1" "$2.dist"; else put 644 "$1" "$2"; fi; }

service() {
    [ -z "$root" ] || return 0
    case "$init-$1" in
        systemd-restart) systemctl daemon-reload; systemctl enable -q edge-runtime.service edge-runtime-firstboot.service; systemctl restart edge-runtime.service ;;
        systemd-stop) systemctl disable -q --now edge-runtime.service edge-runtime-firstboot.service || true ;;
        # A board that has not joined has nothing to start, which OpenRC calls a failure.
        openrc-restart) rc-update add edge-runtime default; rc-service edge-runtime restart || [ ! -e /var/lib/edge-runtime/identity/identity.json ] ;;
        openrc-stop) rc-service edge-runtime stop || true; rc-update del edge-runtime default || true ;;
        script-restart) enable_script; /etc/init.d/edge-runtime restart ;;
        script-stop) /etc/init.d/edge-runtime stop || true; ! command -v update-rc.d >/dev/null || update-rc.d -f edge-runtime remove ;;
    esac
}

# Whatever of the two a board without a package manager has; busybox's init runs /etc/init.d/S* by name.
enable_script() {
    if command -v update-rc.d >/dev/null; then
        update-rc.d edge-runtime defaults
    elif ls /etc/init.d/S* >/dev/null 2>&1; then
        ln -sf edge-runtime /etc/init.d/S95edge-runtime
    else
        say "call /etc/init.d/edge-runtime start at boot: this installer does not know the init system of this board"
    fi
}

install_all() {
    for program in edge-runtime edge-admin edge-devices edge-api edge-plugins; do put 755 "lib/$program" "/usr/lib/edge-runtime/$program"; done
    put 755 bin/edge-runtime /usr/bin/edge-runtime
    put_config etc/config.yaml /etc/edge-runtime/config.yaml
    put_config etc/edge-runtime.default /etc/default/edge-runtime
    mkdir -p "$root/etc/edge-runtime/manifests"
    case "$init" in
        systemd) for unit in init/*.service; do put 644 "$unit" "/etc/systemd/system/$(basename "$unit")"; done ;;
        openrc) put 755 init/edge-runtime.openrc /etc/init.d/edge-runtime ;;
        script) put 755 init/edge-runtime.init /etc/init.d/edge-runtime ;;
    esac
    put 644 init/edge-runtime.logrotate /etc/logrotate.d/edge-runtime
    put 644 share/edge-runtime.bash /usr/share/bash-completion/completions/edge-runtime
    put 644 share/edge-runtime.8.gz /usr/share/man/man8/edge-runtime.8.gz
    put 644 share/edge-runtime.yaml.5.gz /usr/share/man/man5/edge-runtime.yaml.5.gz
    if [ -z "$root" ] && [ -e /var/lib/edge-runtime/versions/state.json ]; then edge-runtime use-packaged || true; fi
    service restart
    for need in runc nft; do
        [ -n "$root" ] || command -v "$need" >/dev/null 2>&1 || say "missing: $need; install it (edge-runtime doctor lists what a node needs)"
    done
    say "installed $(cat VERSION); next: edge-runtime join (cloud-bridge token create prints the command)"
}

remove_all() {
    [ -x "$root/usr/bin/edge-runtime" ] || fail "it is not installed"
    service stop
    if [ -z "$root" ] && ! edge-runtime reset ${1:+--all} </dev/null; then
        # A disk mounted at the state's folder is not emptied; the key goes all the same.
        { [ -n "${1:-}" ] && edge-runtime reset </dev/null; } || fail "it could not be reset, and is still installed"
        rm -rf /var/lib/edge-runtime/identity
        say "/var/lib/edge-runtime stays, without the node's key"
    fi
    rm -f "$root/usr/bin/edge-runtime" "$root/etc/init.d/edge-runtime" "$root/etc/init.d/S95edge-runtime" \
        "$root/etc/systemd/system/edge-runtime.service" "$root/etc/systemd/system/edge-runtime-firstboot.service" \
        "$root/etc/logrotate.d/edge-runtime" "$root/usr/share/bash-completion/completions/edge-runtime" "$root/usr/share/man/man8/edge-runtime.8.gz" \
        "$root/usr/share/man/man5/edge-runtime.yaml.5.gz"
    rm -rf "$root/usr/lib/edge-runtime"
    [ -z "${1:-}" ] || rm -rf "$root/etc/edge-runtime" "$root/etc/default/edge-runtime" "$root/etc/default/edge-runtime.dist" "$root/run/edge-runtime"
    [ -n "$root" ] || [ "$init" != systemd ] || systemctl daemon-reload
    say "removed"
}

case "${1:-install}" in
    install) install_all ;;
    remove) remove_all ;;
    purge) remove_all purge ;;
    *) fail "usage: $0 [install|remove|purge]" ;;
esac
