# The emulator: where it comes from, power on, power off, and commands to the board. Sourced after common.sh.
# Who sources it sets `machine` (an array: the machine's own arguments of QEMU), `console` (its serial line, as the
# kernel calls it) and `bus` (the suffix of its virtio devices: "device" or "pci"); if it likes, `kernel_words`, for its command line.
# shellcheck shell=bash disable=SC2034,SC2154

# need_qemu ARCH PACKAGE: sets qemu, qemu_libraries and qemu_data. Debian's qemu-system cannot be installed beside a
# newer qemu-utils, so it is unpacked into the cache together with the libraries this host lacks; nothing is installed.
need_qemu() {
    local arch=$1 package=$2 packages deb
    local dir=$repo/.cache/qemu-$arch
    qemu=$(command -v "qemu-system-$arch" || true) qemu_libraries='' qemu_data=()
    [ -z "$qemu" ] || return 0
    if [ ! -e "$dir/.done" ]; then
        command -v apt-get >/dev/null 2>&1 || fail "qemu-system-$arch is missing and this is no Debian host: install it by hand"
        say "fetching $package (unpacked into .cache, not installed)"
        packages=$(apt-get -s install --no-install-recommends "$package" 2>/dev/null | awk '$1 == "Inst" {print $2}' || true)
        if [ -z "$packages" ]; then
            apt-get update -qq || say "apt-get update had errors; trying with what it got"
            packages=$(apt-get -s install --no-install-recommends "$package" | awk '$1 == "Inst" {print $2}')
        fi
        rm -rf "$dir" && mkdir -p "$dir/debs"
        # shellcheck disable=SC2086
        (cd "$dir/debs" && quietly apt-get download -qq $packages)
        for deb in "$dir"/debs/*.deb; do dpkg-deb -x "$deb" "$dir/root"; done
        rm -rf "$dir/debs"
        touch "$dir/.done"
    fi
    qemu=$dir/root/usr/bin/qemu-system-$arch
    # Debian's packages put libraries below /usr/lib and some still below /lib; drivers lie deeper and find themselves.
    qemu_libraries=$(find "$dir/root" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd:)
    qemu_data=(-L "$dir/root/usr/share/qemu" -L "$dir/root/usr/share/seabios")
    LD_LIBRARY_PATH=$qemu_libraries "$qemu" --version >/dev/null || fail "the unpacked $qemu does not run: remove $dir and try again"
}

# power_on DIR LOG [NETWORK ARGUMENTS...]: boots and waits until the board takes commands; without arguments the board
# has no network device. Sets boot_seconds.
power_on() {
    local dir=$1 began line; serial_log=$2; shift 2
    [ "$#" -gt 0 ] || set -- -nic none
    rm -f "$dir/control.in" "$dir/control.out"
    mkfifo "$dir/control.in" "$dir/control.out"
    exec {to_board}<>"$dir/control.in" {from_board}<>"$dir/control.out"
    began=$(now)
    start board "$dir/qemu.log" "$pids" env ${qemu_libraries:+LD_LIBRARY_PATH="$qemu_libraries"} \
        "$qemu" "${qemu_data[@]}" -accel tcg "${machine[@]}" -nodefaults -display none -no-reboot \
        -kernel "$kernel_image" -initrd "$initramfs" -append "console=$console quiet panic=1 ${kernel_words:-}" \
        -serial "file:$serial_log" \
        -drive "file=$disk,format=raw,if=none,id=disk,cache=unsafe" -device "virtio-blk-$bus,drive=disk" \
        -chardev "pipe,id=control,path=$dir/control" -device "virtio-serial-$bus" -device virtserialport,chardev=control,name=control \
        "$@"
    board_line 300 || board_failed "the board did not boot within 300 s"
    [ "$line" = @ready ] || board_failed "the board said '$line' instead of @ready"
    boot_seconds=$(elapsed "$began")
}

# The power goes: what the board has not written is lost. What it has is safe in this host's memory, whatever it has flushed
# (cache=unsafe): scripts/power-cut is for that.
power_off() {
    local pid began
    read -r pid began <"$pids/board"
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    rm -f "$pids/board"
    exec {to_board}>&- {from_board}>&-
}

# board SECONDS COMMAND...: runs a command line on the board; its output and its exit code are this one's.
board() {
    local limit=$1 line; shift
    printf '%s\n' "$*" >&"$to_board"
    while board_line "$limit"; do
        case "$line" in "@end "*) return "${line#@end }" ;; esac
        printf '%s\n' "$line"
    done
    board_failed "the board did not answer within $limit s: $*"
}

# Sets the caller's `line`; fails after SECONDS, or when the emulator has ended.
board_line() {
    local deadline=$((SECONDS + $1)) part=
    line=
    while [ "$SECONDS" -lt "$deadline" ]; do
        if IFS= read -r -t 1 -u "$from_board" part; then line=$line$part; return 0; fi
        line=$line$part
        running "$pids/board" || { say "the emulator ended: $(tail -n 3 "$work/qemu.log")" >&2; return 1; }
    done
    return 1
}

board_failed() {
    { echo "--- the last of the board's serial log"; tail -n 40 "$serial_log"; echo "---"; } >&2
    fail "$*"
}

now() { printf '%s\n' "$EPOCHREALTIME"; }
elapsed() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}'; }
