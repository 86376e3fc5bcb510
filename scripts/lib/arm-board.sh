# The emulated board's software: Debian's arm64 kernel, runc, nft and busybox, and our edge-runtime, as a kernel, an
# initramfs and a disk. Nothing of it is installed on this host. Sourced after common.sh and foreign.sh.

board_modules="virtio_pci virtio_mmio virtio_blk virtio_net virtio_console overlay veth bridge nf_tables nft_masq nft_chain_nat nft_ct"
# runc and nft with what they are linked to; busybox is static.
board_packages="runc libseccomp2 libc6 libgcc-s1 nftables libnftables1 libedit2 libgmp10 libjansson4 libmnl0 libnftnl11
    libxtables12 libbsd0 libmd0 libtinfo6 busybox-static"

# board_kernel DIR: unpacks the kernel into DIR/kernel; sets kernel_image and kernel_version.
board_kernel() {
    local dir=$1/kernel meta package
    meta=$(foreign_deb arm64 linux-image-cloud-arm64)
    package=$(dpkg-deb -f "$meta" Depends | grep -o -m 1 'linux-image-[^ ,]*' | head -n 1)
    kernel_version=${package#linux-image-}
    mkdir -p "$dir"
    dpkg-deb --fsys-tarfile "$(foreign_deb arm64 "$package")" | tar -x -C "$dir" ./boot ./lib/modules
    kernel_image=$dir/boot/vmlinuz-$kernel_version
    [ -s "$kernel_image" ] || fail "$package has no boot/vmlinuz-$kernel_version"
    # The package leaves the list of dependencies to its installation.
    depmod -b "$dir" "$kernel_version"
}

# Files of the modules named, those they need first.
module_files() {
    local dir=$1/kernel module; shift
    for module in "$@"; do modprobe -d "$dir" -S "$kernel_version" --show-depends "$module"; done |
        awk '$1 == "insmod" && !seen[$2]++ {print $2}'
}

# board_initramfs DIR: just enough to mount the disk; sets initramfs.
board_initramfs() {
    local root=$1/initramfs file
    initramfs=$1/initramfs.cpio.gz
    mkdir -p "$root/bin" "$root/dev" "$root/disk" "$root/modules"
    cp "$1/disk/bin/busybox" "$root/bin/busybox"
    cp "$repo/scripts/lib/arm-rootfs/early-init" "$root/init"
    module_files "$1" virtio_pci virtio_mmio virtio_blk | while read -r file; do
        cp "$file" "$root/modules/"
        basename "$file" >>"$root/modules/order"
    done
    (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) >"$initramfs"
}

# board_disk DIR EDGE_RUNTIME: the root file system, which keeps the node's state; sets disk.
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
    BUSYBOX=$root/bin/busybox ARCH=arm64 "$repo/scripts/lib/make-busybox-image.sh" "$root/root/busybox.tar"
    truncate -s 384M "$disk"
    quietly mkfs.ext4 -q -F -E root_owner=0:0 -d "$root" "$disk"
}
