# systemd as the first process of the emulated machine: the host's own, with a handful of units instead of a
# distribution's. Sourced after cgroup2-board.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# board_systemd ROOT: instead of busybox's init.
board_systemd() {
    local root=$1 program
    put "$root" /usr/lib/systemd/systemd /usr/lib/systemd/systemd
    for program in systemctl busctl systemd-run dbus-daemon; do put "$root" "$(command -v "$program")" "/usr/bin/$program"; done
    ln -sf ../lib/systemd/systemd "$root/usr/sbin/init"
    cp -R "$repo/scripts/lib/systemd-rootfs/." "$root/"
    mkdir -p "$root/usr/share/dbus-1/system.d" "$root/var/log"
    cp /usr/share/dbus-1/system.conf "$root/usr/share/dbus-1/"
    cp /usr/share/dbus-1/system.d/org.freedesktop.systemd1.conf "$root/usr/share/dbus-1/system.d/"
    echo 'messagebus:x:100:102::/nonexistent:/usr/sbin/nologin' >>"$root/etc/passwd"
    echo 'messagebus:x:102:' >>"$root/etc/group"
    echo 00000000000000000000000000000001 >"$root/etc/machine-id"
    : >"$root/etc/fstab"
}
