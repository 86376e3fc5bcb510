# An emulated machine with Debian's own system, systemd first: what is on its disk. Sourced after machine-kernel.sh.
# shellcheck shell=bash disable=SC2034,SC2154

board_modules="virtio_pci virtio_mmio virtio_blk virtio_net virtio_console autofs4 overlay veth bridge br_netfilter"
# Of a fresh image, and what edge-runtime's package depends on: the machine reaches no mirror.
board_packages=systemd-sysv,dbus,kmod,iproute2,procps,adduser,ca-certificates,init-system-helpers,runc,nftables

# debian_root ARCH: an archive of a minimal Debian, made once; sets root_archive.
debian_root() {
    local arch=$1 suite emulator
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
    root_archive=$repo/.cache/debian/$suite-$arch.tar
    [ ! -s "$root_archive" ] || return 0
    need mmdebstrap mmdebstrap
    mkdir -p "$repo/.cache/debian"
    say "making a minimal Debian ($suite) for $arch"
    if [ "$arch" != "$(dpkg --print-architecture)" ]; then
        case "$arch" in arm64) emulator=aarch64 ;; armhf) emulator=arm ;; *) fail "no emulator for $arch" ;; esac
        need "qemu-$emulator-static" qemu-user-static
        # By which mmdebstrap makes sure that this host runs that architecture.
        need arch-test arch-test
        interpret "$emulator"
    fi
    # The file name makes mmdebstrap write an archive. Without security updates: their index for armhf sometimes does
    # not match its mirror, which makes mmdebstrap fail.
    quietly mmdebstrap --arch="$arch" --variant=minbase --include="$board_packages" "$suite" "${root_archive%.tar}.new.tar" \
        "deb http://deb.debian.org/debian $suite main"
    mv "${root_archive%.tar}.new.tar" "$root_archive"
}

# interpret NAME: this kernel runs programs of that architecture until `interpret_no_more`.
interpret() {
    local format=/proc/sys/fs/binfmt_misc magic
    if [ ! -e "$format/register" ]; then mount -t binfmt_misc binfmt_misc "$format"; interpreting=mounted; fi
    # This host's own, or what a run has left that was killed.
    [ ! -e "$format/qemu-$1" ] && [ ! -e "$format/sampan-$1" ] || return 0
    # An ELF header up to e_machine, little endian: executables and shared objects (binfmt_misc.rst; qemu-binfmt-conf.sh).
    case "$1" in
        aarch64) magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' ;;
        arm) magic='\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x28\x00' ;;
    esac
    # F: opened now, so that it is there in a root of another architecture, too.
    printf '%s' ":sampan-$1:M::$magic:\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:/usr/bin/qemu-$1-static:F" >"$format/register"
    interpreters="${interpreters:-} $1"
}

interpret_no_more() {
    local one format=/proc/sys/fs/binfmt_misc
    for one in ${interpreters:-}; do echo -1 >"$format/sampan-$one"; done
    interpreters=
    if [ "${interpreting:-}" = mounted ]; then umount "$format"; interpreting=; fi
}

# debian_disk DIR ARCH FILE...: the files in /root; sets disk.
debian_disk() {
    local dir=$1 root=$1/disk arch=$2 file; shift 2
    disk=$dir/disk.img
    mkdir -p "$root"
    debian_root "$arch"
    tar -x -C "$root" -f "$root_archive" --exclude='./dev/*'
    cp "$repo/scripts/lib/arm-rootfs/sbin/control" "$root/usr/sbin/control"
    cp "$repo/scripts/lib/systemd-rootfs/usr/sbin/board-up" "$root/usr/sbin/board-up"
    cp "$repo/scripts/lib/systemd-rootfs/etc/systemd/system/board.service" "$repo/scripts/lib/systemd-rootfs/etc/systemd/system/control.service" "$root/etc/systemd/system/"
    mkdir -p "$root/etc/systemd/system/sysinit.target.wants" "$root/etc/systemd/system/multi-user.target.wants"
    ln -sf ../board.service "$root/etc/systemd/system/sysinit.target.wants/"
    # Taken when the system is up, as a person would log in.
    sed -i -e 's/^DefaultDependencies=no$/After=multi-user.target/' -e '/^After=board/d' "$root/etc/systemd/system/control.service"
    ln -sf ../control.service "$root/etc/systemd/system/multi-user.target.wants/"
    sed -i 's/^After=multi-user.target$/After=dbus.service/' "$root/etc/systemd/system/control.service"
    echo 00000000000000000000000000000002 >"$root/etc/machine-id"
    echo board >"$root/etc/hostname"
    printf '127.0.0.1 localhost board\n' >"$root/etc/hosts"
    printf 'nameserver 10.0.2.3\n' >"$root/etc/resolv.conf"
    : >"$root/etc/fstab"
    # No login on the serial line.
    ln -sf /dev/null "$root/etc/systemd/system/serial-getty@.service"
    ln -sf /dev/null "$root/etc/systemd/system/getty.target"
    # All of netfilter, as a board has it: what rules need is loaded by the kernel itself.
    # shellcheck disable=SC2046,SC2086
    module_files "$dir" $board_modules $(find "$dir/kernel/lib/modules" -path '*/net/*' -name 'nf*.ko' -exec basename -s .ko {} +) | while read -r file; do
        file=${file#"$dir/kernel/"}
        install -D -m 644 "$dir/kernel/$file" "$root/$file"
    done
    cp "$dir/kernel/lib/modules/$kernel_version/"modules.builtin* "$dir/kernel/lib/modules/$kernel_version/modules.order" "$root/lib/modules/$kernel_version/"
    depmod -b "$root" "$kernel_version"
    for file in "$@"; do cp "$file" "$root/root/"; done
    mkdir -p "$root/bin"
    truncate -s 1500M "$disk"
    quietly mkfs.ext4 -q -F -E root_owner=0:0 -d "$root" "$disk"
}
