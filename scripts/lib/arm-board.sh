# The emulated board's software: Debian's arm64 kernel, runc, nft and busybox, and our edge-runtime, as a kernel, an
# initramfs and a disk. Nothing of it is installed on this host. Sourced after machine-kernel.sh.
# shellcheck shell=bash disable=SC2034,SC2154

board_modules="virtio_pci virtio_mmio virtio_blk virtio_net virtio_console overlay veth bridge nf_tables nft_masq nft_chain_nat nft_ct
    nft_nat nft_numgen nft_fib_ipv4 nft_fib_ipv6 nft_reject_ipv4 nft_reject_ipv6"
# runc and nft with what they are linked to; busybox is static.
board_packages="runc libseccomp2 libc6 libgcc-s1 nftables libnftables1 libedit2 libgmp10 libjansson4 libmnl0 libnftnl11
    libxtables12 libbsd0 libmd0 libtinfo6 busybox-static"

# board_disk DIR EDGE_RUNTIME: with edge-admin, edge-devices, edge-api, edge-plugins and edge-mapper beside it, the root file system, which keeps the node's state; sets disk.
board_disk() {
    local root=$1/disk edge=$2 package applet file
    disk=$1/disk.img
    mkdir -p "$root"
    for package in $board_packages; do
        dpkg-deb --fsys-tarfile "$(foreign_deb arm64 "$package")" |
            tar -x -C "$root" --exclude='./usr/share/*' --exclude='*/gconv/*' --exclude='./usr/lib/debug/*'
    done
    (cd "$root" && mkdir -p dev proc sys run tmp root etc bin sbin usr/bin usr/sbin var/lib var/log lib/modules)
    for applet in $(/bin/busybox --list); do
        [ -e "$root/bin/$applet" ] || [ -e "$root/usr/sbin/$applet" ] || ln -s busybox "$root/bin/$applet"
    done
    for applet in init modprobe reboot; do ln -sf ../bin/busybox "$root/sbin/$applet"; done
    cp -R "$repo/scripts/lib/arm-rootfs/etc" "$repo/scripts/lib/arm-rootfs/sbin" "$root/"
    # shellcheck disable=SC2086
    module_files "$1" $board_modules | while read -r file; do
        file=${file#"$1/kernel/"}
        install -D -m 644 "$1/kernel/$file" "$root/$file"
    done
    cp "$1/kernel/lib/modules/$kernel_version/"modules.builtin* "$1/kernel/lib/modules/$kernel_version/modules.order" "$root/lib/modules/$kernel_version/"
    depmod -b "$root" "$kernel_version"
    install -m 755 "$edge" "$root/usr/bin/edge-runtime"
    for file in edge-admin edge-devices edge-api edge-plugins edge-mapper; do install -m 755 "$(dirname "$edge")/$file" "$root/usr/bin/$file"; done
    BUSYBOX=$root/bin/busybox ARCH=arm64 "$repo/scripts/lib/make-busybox-image.sh" "$root/root/busybox.tar"
    truncate -s 384M "$disk"
    quietly mkfs.ext4 -q -F -E root_owner=0:0 -d "$root" "$disk"
}
