# The programs, what is in them, and what they say about themselves. Sourced after tools.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# Programs of a node, beside each other in one folder, which is one version. `edge-launcher` does not belong to them: it
# chooses the version.
programs="edge-runtime edge-admin edge-devices edge-api edge-plugins"

# Sets up $built: ARCH/PROGRAM, ARCH/NAME.spdx.json and shared/NAME, which is the same on all.
get_programs() {
    local arch folder program node=
    { wants deb || wants board; } && node=1
    for arch in $archs; do
        folder=$from/$arch
        if [ -z "$from" ]; then
            local more=
            { wants bridge || wants image; } && more=--bridge
            # shellcheck disable=SC2086
            "$repo/scripts/cross" "$(cross_of "$arch")" $more
            folder=$repo/target/$(triple_of "$arch")/release
        fi
        mkdir -p "$built/$arch"
        if [ -n "$node" ]; then
            for program in $programs edge-launcher; do cp "$folder/$program" "$built/$arch/"; done
            python3 "$repo/scripts/lib/package/sbom.py" edge-runtime "$version" "$(triple_of "$arch")" \
                edge-runtime sampan-admin sampan-launcher sampan-devices sampan-api sampan-plugins >"$built/$arch/edge-runtime.spdx.json"
        fi
        if wants bridge || wants image; then
            program=$folder/cloud-bridge
            [ -n "$from" ] || program=$repo/target/$(triple_of "$arch")/bridge/cloud-bridge
            cp "$program" "$built/$arch/"
            python3 "$repo/scripts/lib/package/sbom.py" cloud-bridge "$version" "$(triple_of "$arch")" \
                cloud-bridge >"$built/$arch/cloud-bridge.spdx.json"
        fi
        shared_documents "$arch"
    done
}

# Completions and manual pages, as the first program that runs here says them.
shared_documents() {
    local arch=$1 pair name program tree verb
    for pair in edge-runtime:edge-admin cloud-bridge:cloud-bridge; do
        name=${pair%:*} program=$built/$arch/${pair#*:} tree=$built/shared/${pair%:*}/usr/share
        [ -x "$program" ] && [ ! -d "$tree" ] || continue
        emulated "$arch" "$program" completion bash | put 644 "$tree/bash-completion/completions/$name"
        emulated "$arch" "$program" completion zsh | put 644 "$tree/zsh/vendor-completions/_$name"
        emulated "$arch" "$program" completion fish | put 644 "$tree/fish/vendor_completions.d/$name.fish"
        if [ "$name" = edge-runtime ]; then
            emulated "$arch" "$program" man "$work/man" >/dev/null
            put_gz "$tree/man/man8/$name.8.gz" <"$work/man/$name.8"
            put_gz "$tree/man/man5/$name.yaml.5.gz" <"$work/man/$name.yaml.5"
            continue
        fi
        emulated "$arch" "$program" man | put_gz "$tree/man/man8/$name.8.gz"
        for verb in serve standalone nodes doctor kubeconfig page backup restore token token-create token-claim token-list \
            token-delete authority authority-rotate authority-status authority-finish; do
            # shellcheck disable=SC2086
            emulated "$arch" "$program" man ${verb//-/ } | put_gz "$tree/man/man8/$name-$verb.8.gz"
        done
    done
}
