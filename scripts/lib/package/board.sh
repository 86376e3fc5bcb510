# What boards without dpkg are installed from, and what `edge-runtime upgrade` takes. Sourced after tools.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# The archive with install.sh.
board_archive() {
    local arch=$1 name=edge-runtime-$version-$1 from=$repo/packaging program share=$built/shared/edge-runtime/usr/share
    local tree=$work/$arch/archive/$name
    install -D -m 755 "$built/$arch/edge-launcher" "$tree/bin/edge-runtime"
    for program in $programs; do install -D -m 755 "$built/$arch/$program" "$tree/lib/$program"; done
    install -D -m 644 "$from/edge-runtime/config.yaml" "$tree/etc/config.yaml"
    install -D -m 644 "$from/edge-runtime/edge-runtime.default" "$tree/etc/edge-runtime.default"
    mkdir -p "$tree/init" "$tree/share"
    install -m 644 "$from"/edge-runtime/*.service "$tree/init/"
    install -m 755 "$from/tarball/edge-runtime.openrc" "$from/tarball/edge-runtime.init" "$tree/init/"
    install -m 644 "$from/tarball/edge-runtime.logrotate" "$tree/init/"
    install -m 644 "$share/bash-completion/completions/edge-runtime" "$tree/share/edge-runtime.bash"
    install -m 644 "$share/man/man8/edge-runtime.8.gz" "$share/man/man5/edge-runtime.yaml.5.gz" "$tree/share/"
    install -m 644 "$repo/LICENSE" "$tree/LICENSE"
    install -m 644 "$built/$arch/edge-runtime.spdx.json" "$tree/sbom.spdx.json"
    install -m 755 "$from/tarball/install.sh" "$tree/install.sh"
    echo "$version" | put 644 "$tree/VERSION"
    find "$tree" -type d -exec chmod 755 {} +
    equal_tar "$work/$arch/archive.tar" "$work/$arch/archive" "$name"
    gzip -9n <"$work/$arch/archive.tar" >"$out/$name.tar.gz"
}

# The programs of one version and a manifest of them: as a plain archive and as an OCI image of one layer.
upgrade_bundle() {
    local arch=$1 tree=$work/$1/bundle program own
    mkdir -p "$tree"
    for program in $programs; do install -m 755 "$built/$arch/$program" "$tree/$program"; done
    # What the daemon says of itself: a node refuses a bundle that says otherwise.
    own=$(emulated "$arch" "$tree/edge-runtime" version | awk '{print $2}')
    # shellcheck disable=SC2086
    python3 "$repo/scripts/lib/package/oci.py" manifest "$own" "$(go_of "$arch")" "$tree" $programs | put 644 "$tree/manifest.json"
    # shellcheck disable=SC2046,SC2086
    equal_tar "$out/edge-runtime_${version}_$arch.tar" "$tree" manifest.json $(printf '%s\n' $programs | LC_ALL=C sort)
    python3 "$repo/scripts/lib/package/oci.py" image "$out/edge-runtime_${version}_$arch.oci.tar" "$version" \
        "upgrade:$(go_of "$arch"):$out/edge-runtime_${version}_$arch.tar"
}

# cloud-bridge alone, for each architecture, as a user that is not root.
bridge_image() {
    local arch tree layers=
    for arch in $archs; do
        tree=$work/$arch/image
        mkdir -p "$tree/etc/ssl/certs" "$tree/tmp"
        install -m 755 "$built/$arch/cloud-bridge" "$tree/cloud-bridge"
        # Who may vouch for the servers that rules lead to: Debian's list, not what this host trusts besides.
        [ -d /usr/share/ca-certificates/mozilla ] || need no-such-command-certificates ca-certificates
        find /usr/share/ca-certificates/mozilla -name '*.crt' | LC_ALL=C sort | xargs cat | put 644 "$tree/etc/ssl/certs/ca-certificates.crt"
        printf 'root:x:0:0:root:/:/none\nnonroot:x:65532:65532:nonroot:/:/none\n' | put 644 "$tree/etc/passwd"
        printf 'root:x:0:\nnonroot:x:65532:\n' | put 644 "$tree/etc/group"
        find "$tree" -type d -exec chmod 755 {} +
        chmod 1777 "$tree/tmp"
        equal_tar "$work/$arch/image.tar" "$tree" cloud-bridge etc tmp
        layers="$layers bridge:$(go_of "$arch"):$work/$arch/image.tar"
    done
    # shellcheck disable=SC2086
    python3 "$repo/scripts/lib/package/oci.py" image "$out/cloud-bridge_$version.oci.tar" "$version" $layers
}
