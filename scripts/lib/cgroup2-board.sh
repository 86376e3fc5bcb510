# The disk of the emulated x86-64 machine: this host's own programs with the libraries they are linked to, our
# programs and our tests. Sourced after machine-kernel.sh.
# shellcheck shell=bash disable=SC2034,SC2154

board_modules="virtio_pci virtio_blk virtio_net virtio_console overlay veth bridge nf_tables nft_masq nft_chain_nat nft_ct"
# Everything else is busybox, but for the shell: busybox's prefers its own tar.
board_programs="runc crun nft ip tar script bash dash"

# put ROOT PROGRAM TARGET: the program, without its debug information, and what it is linked to.
put() {
    local root=$1 program=$2 target=$3 library
    mkdir -p "$root$(dirname "$target")"
    cp -L "$program" "$root$target"
    strip --strip-debug "$root$target" 2>/dev/null || true
    { ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | sort -u || true; } | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        [ -e "$root$library" ] || cp -L "$library" "$root$library"
    done
}

# board_disk DIR BIN TESTS...: BIN is the folder of our programs, TESTS are the files of the suites; sets disk.
# INIT=systemd: with systemd as the first process.
board_disk() {
    local dir=$1 root=$1/disk bin=$2 program applet file kubectl; shift 2
    disk=$dir/disk.img
    mkdir -p "$root"
    (cd "$root" && mkdir -p dev proc sys run tmp root etc usr/bin usr/sbin usr/lib usr/lib64 var/lib var/log suites && ln -s usr/bin bin && ln -s usr/sbin sbin && ln -s usr/lib lib && ln -s usr/lib64 lib64)
    put "$root" /bin/busybox /usr/bin/busybox
    for program in $board_programs; do put "$root" "$(command -v "$program")" "/usr/bin/$program"; done
    # For kernels with AppArmor, which Debian's are.
    if program=$(PATH=$PATH:/usr/sbin command -v apparmor_parser); then
        put "$root" "$program" /usr/sbin/apparmor_parser
        mkdir -p "$root/etc/apparmor.d"
        cp -R /etc/apparmor.d/abi "$root/etc/apparmor.d/"
    fi
    kubectl=${SAMPAN_KUBECTL_NEW:-$(command -v kubectl)}
    cp -L "$kubectl" "$root/usr/bin/kubectl"
    for program in edge-runtime edge-admin cloud-bridge; do put "$root" "$bin/$program" "/usr/bin/$program"; done
    for file in "$@"; do
        program=$(basename "$file")
        put "$root" "$file" "/suites/${program%-*}"
    done
    for applet in $(/bin/busybox --list); do [ -e "$root/usr/bin/$applet" ] || ln -s busybox "$root/usr/bin/$applet"; done
    ln -sf dash "$root/usr/bin/sh"
    for applet in init modprobe reboot; do ln -sf ../bin/busybox "$root/usr/sbin/$applet"; done
    cp -R "$repo/scripts/lib/arm-rootfs/etc" "$root/"
    cp "$repo/scripts/lib/arm-rootfs/sbin/control" "$root/usr/sbin/control"
    # No node here: the tests start their own nodes.
    printf '::sysinit:/etc/init.d/rcS\n::respawn:/sbin/control\n' >"$root/etc/inittab"
    echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    echo '127.0.0.1 localhost' >"$root/etc/hosts"
    echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
    [ "${INIT:-busybox}" != systemd ] || board_systemd "$root"
    # What a script wants besides.
    ! declare -F board_extra >/dev/null || board_extra "$root"
    # Where the tests look for it.
    mkdir -p "$root$repo/scripts" "$root$repo/tests"
    cp -R "$repo/scripts/lib" "$root$repo/scripts/"
    # shellcheck disable=SC2086
    module_files "$dir" $board_modules | while read -r file; do
        file=${file#"$dir/kernel/"}
        install -D -m 644 "$dir/kernel/$file" "$root/$file"
    done
    cp "$dir/kernel/lib/modules/$kernel_version/"modules.builtin* "$dir/kernel/lib/modules/$kernel_version/modules.order" "$root/lib/modules/$kernel_version/"
    depmod -b "$root" "$kernel_version"
    truncate -s 3000M "$disk"
    quietly mkfs.ext4 -q -F -E root_owner=0:0 -d "$root" "$disk"
}
