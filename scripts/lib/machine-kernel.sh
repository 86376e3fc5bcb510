# The kernel of an emulated machine: Debian's cloud kernel, its modules, and an initramfs that mounts the disk.
# Nothing of it is installed on this host. Sourced after common.sh and foreign.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# board_kernel DIR ARCH: unpacks the kernel into DIR/kernel; sets kernel_image and kernel_version. MACHINE_KERNEL names
# another version than the release's own that Debian has a package of (6.12), MACHINE_SUITE another release (bullseye: 5.10).
board_kernel() {
    local dir=$1/kernel arch=$2 meta package part flavour=cloud-$2 foreign_suite=${MACHINE_SUITE:-}
    # Debian does not have the cloud flavour for armhf.
    [ "$arch" != armhf ] || flavour=armmp
    meta=$(foreign_deb "$arch" "linux-image-${MACHINE_KERNEL:+$MACHINE_KERNEL-}$flavour")
    package=$(dpkg-deb -f "$meta" Depends | grep -o -m 1 'linux-image-[^ ,]*' | head -n 1)
    kernel_version=${package#linux-image-}
    mkdir -p "$dir/boot"
    # Newer releases have the image and the modules in packages of their own, and below /usr.
    for part in "$package" $(dpkg-deb -f "$(foreign_deb "$arch" "$package")" Depends | grep -o 'linux-\(base\|binary\|modules\)-[^ ,]*' || true); do
        dpkg-deb -x "$(foreign_deb "$arch" "$part")" "$dir"
    done
    [ ! -d "$dir/usr/lib/modules" ] || { mkdir -p "$dir/lib"; mv "$dir/usr/lib/modules" "$dir/lib/"; }
    kernel_image=$(find "$dir/boot" "$dir/lib/modules/$kernel_version" -name 'vmlinuz*' 2>/dev/null | head -n 1)
    [ -s "$kernel_image" ] || fail "$package has no vmlinuz"
    # Newer packages compress their modules, which the busybox of the initramfs may not undo.
    find "$dir/lib/modules" -name '*.ko.xz' -exec xz -d {} +
    find "$dir/lib/modules" -name '*.ko.zst' -exec zstd -q -d --rm {} +
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
    module_files "$1" virtio_pci virtio_mmio virtio_blk ext4 | while read -r file; do
        cp "$file" "$root/modules/"
        basename "$file" >>"$root/modules/order"
    done
    (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) >"$initramfs"
}
