# Debian packages of another architecture, without making it an architecture of this host.
# Sourced after common.sh.
# shellcheck shell=bash disable=SC2034,SC2154

foreign_cache=$repo/.cache/foreign

# Packages of ARCH: of this host's Debian, or of foreign_suite, if that is set.
foreign_dir() { echo "$foreign_cache/$1${foreign_suite:+-$foreign_suite}"; }

# An apt that thinks it is on ARCH, with lists of its own.
foreign_apt() {
    local arch=$1 dir sources=(); dir=$(foreign_dir "$1"); shift
    [ -z "${foreign_suite:-}" ] || sources=(-o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=-)
    apt-get "${sources[@]}" -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State::lists="$dir/lists" \
        -o Dir::Cache="$dir/cache" -o Dir::State::status="$dir/status" -o APT::Get::List-Cleanup=false -q "$@"
}

foreign_update() {
    local arch=$1 dir; dir=$(foreign_dir "$1")
    [ -e "$dir/updated" ] && return
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/debs"
    : >"$dir/status"
    [ -z "${foreign_suite:-}" ] || echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $foreign_suite main" >"$dir/sources.list"
    say "reading Debian's package lists for $arch${foreign_suite:+ ($foreign_suite)}"
    # One inconsistent index must not hide the others: what is missing shows at the download.
    foreign_apt "$arch" update >"$dir/update.log" 2>&1 || true
    touch "$dir/updated"
}

# foreign_deb ARCH PACKAGE [VERSION]: prints the path of the downloaded .deb.
foreign_deb() {
    local arch=$1 package=$2 version=${3:-} dir found; dir=$(foreign_dir "$1")
    foreign_update "$arch" >&2
    found=$(find "$dir/debs" -name "${package}_*.deb" | head -n 1)
    if [ -z "$found" ]; then
        if ! (cd "$dir/debs" && foreign_apt "$arch" download "$package${version:+=$version}") >"$dir/download.log" 2>&1; then
            [ -n "$version" ] || { cat "$dir/download.log" >&2; fail "no $package for $arch: see $dir/update.log for indexes that failed"; }
            foreign_from_pool "$arch" "$package" "$version" >&2
        fi
        found=$(find "$dir/debs" -name "${package}_*.deb" | head -n 1)
    fi
    [ -n "$found" ] || fail "$package for $arch was not downloaded: see $dir/download.log"
    printf '%s\n' "$found"
}

# The index of an architecture is now and then inconsistent on the mirrors; the file itself lies beside the one of
# this host's architecture, whose place is known.
foreign_from_pool() {
    local arch=$1 package=$2 version=$3 host uri file
    host=$(dpkg --print-architecture)
    say "$package $version is not in the $arch index ($(grep -m 1 -E 'unexpected size|Hash' "$foreign_cache/$arch/update.log" || echo 'see update.log')): taking it from the pool"
    uri=$(apt-get --print-uris download "$package:$host=$version" 2>/dev/null | sed -n "s/^'\([^']*\)'.*/\1/p")
    [ -n "$uri" ] || fail "$package $version is not known for $host either"
    uri=${uri%_"$host".deb}_$arch.deb
    file=$foreign_cache/$arch/debs/${uri##*/}
    /usr/lib/apt/apt-helper download-file "$uri" "$file" >/dev/null || fail "$uri cannot be fetched"
    # A package of the wrong name, version or architecture must not come in by accident.
    [ "$(dpkg-deb -f "$file" Package Version Architecture | awk '{print $2}' | paste -sd' ')" = "$package $version $arch" ] ||
        { rm -f "$file"; fail "$uri is not $package $version for $arch"; }
}
