# Debian packages. Sourced after tools.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# deb_tree NAME ARCH TREE PROGRAM: what both packages have: unit files, defaults, documents.
deb_common() {
    local name=$1 arch=$2 tree=$3 from=$repo/packaging/$1 file
    mkdir -p "$tree/DEBIAN"
    install -D -m 644 "$from/$name.default" "$tree/etc/default/$name"
    for file in "$from"/*.service; do install -D -m 644 "$file" "$tree/lib/systemd/system/$(basename "$file")"; done
    install -D -m 644 "$repo/packaging/copyright" "$tree/usr/share/doc/$name/copyright"
    install -D -m 644 "$built/$arch/$name.spdx.json" "$tree/usr/share/doc/$name/sbom.spdx.json"
    put_gz "$tree/usr/share/doc/$name/changelog.gz" <"$repo/CHANGELOG.md"
    { printf '%s (%s-1) stable; urgency=medium\n\n  * What has changed is in changelog.gz.\n\n' "$name" "$version"
        printf ' -- Sampan developers <developers@sampan.dev>  %s\n' "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"; } |
        put_gz "$tree/usr/share/doc/$name/changelog.Debian.gz"
    install -D -m 644 "$from/lintian-overrides" "$tree/usr/share/lintian/overrides/$name"
    (cd "$built/shared/$name" && cp -pR . "$tree/")
}

# deb_build NAME ARCH TREE: the package of a tree.
deb_build() {
    local name=$1 arch=$2 tree=$3 from=$repo/packaging/$1 script
    install -m 644 "$from/conffiles" "$tree/DEBIAN/conffiles"
    for script in preinst postinst prerm postrm; do
        [ ! -e "$from/$script" ] || install -m 755 "$from/$script" "$tree/DEBIAN/$script"
    done
    (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | grep -v -x -F -f <(sed 's,^/,,' DEBIAN/conffiles) | xargs md5sum >DEBIAN/md5sums)
    # As dpkg-gencontrol counts: files by kilobytes, all else as one.
    local size; size=$(cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%s\n' -o -printf '1\n' | awk '{s += int(($1 + 1023) / 1024)} END {print s}')
    sed -e "s/@VERSION@/$version-1/" -e "s/@ARCH@/$arch/" -e "s/@SIZE@/$size/" "$from/control.in" >"$tree/DEBIAN/control"
    chmod 644 "$tree/DEBIAN/control" "$tree/DEBIAN/md5sums"
    find "$tree" -type d -exec chmod 755 {} +
    find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Z"${PACKAGE_COMPRESSION:-xz}" --threads-max=1 --build "$tree" "$out/${name}_$version-1_$arch.deb" >/dev/null
}

deb_edge_runtime() {
    local arch=$1 tree=$work/$1/edge-runtime program
    deb_common edge-runtime "$arch" "$tree"
    install -D -m 755 "$built/$arch/edge-launcher" "$tree/usr/bin/edge-runtime"
    for program in $programs; do install -D -m 755 "$built/$arch/$program" "$tree/usr/lib/edge-runtime/$program"; done
    install -D -m 644 "$repo/packaging/edge-runtime/config.yaml" "$tree/etc/edge-runtime/config.yaml"
    mkdir -p "$tree/etc/edge-runtime/manifests"
    deb_build edge-runtime "$arch" "$tree"
}

deb_cloud_bridge() {
    local arch=$1 tree=$work/$1/cloud-bridge
    deb_common cloud-bridge "$arch" "$tree"
    install -D -m 755 "$built/$arch/cloud-bridge" "$tree/usr/bin/cloud-bridge"
    deb_build cloud-bridge "$arch" "$tree"
}
