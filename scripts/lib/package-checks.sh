# What is asked of a board on its first day. Sourced after machine.sh and debian-board.sh.
# shellcheck shell=bash disable=SC2034,SC2154

machine_of() {
    case "$1" in
        amd64) machine=(-M q35 -cpu max -smp 2 -m 1024) console=ttyS0 bus=pci; need_qemu x86_64 qemu-system-x86 ;;
        arm64) machine=(-M virt -cpu cortex-a53 -m 512) console=ttyAMA0 bus=device; need_qemu aarch64 qemu-system-arm ;;
        armhf) machine=(-M "virt,highmem=off" -cpu cortex-a7 -m 512) console=ttyAMA0 bus=device; need_qemu arm qemu-system-arm ;;
    esac
}

# packages_of ARCH: sets package, next_package and bundle (what `edge-runtime upgrade` takes).
packages_of() {
    local arch=$1
    # Quick to pack, and on the board quick to unpack.
    [ -n "${PACKAGES:-}" ] || PACKAGE_COMPRESSION=gzip "$repo/scripts/package" "$arch" --only deb --only board --out "$work/packages"
    [ -n "${NEXT:-}" ] || PACKAGE_COMPRESSION=gzip PACKAGE_VERSION=0.1.1 "$repo/scripts/package" "$arch" --only deb --out "$work/next"
    local first=${PACKAGES:-$work/packages} next=${NEXT:-$work/next}
    package=$(echo "$first"/edge-runtime_*_"$arch".deb) next_package=$(echo "$next"/edge-runtime_*_"$arch".deb)
    bundle=$(echo "$first"/edge-runtime_*_"$arch".tar)
}

machine_pod() {
    cat <<YAML
---
apiVersion: v1
kind: Pod
metadata: {name: $1-$2}
spec:
  nodeName: $1
  terminationGracePeriodSeconds: 1
  containers:
    - {name: main, image: "docker.io/library/busybox:latest", imagePullPolicy: IfNotPresent, command: [sleep, "1000000"]}
YAML
}

# Programs that wait, and in what.
stuck_command='for p in /proc/[0-9]*; do case "$(tr "\\0" " " <$p/cmdline)" in *runc*|*edge-*) echo "$p: $(tr "\\0" " " <$p/cmdline | cut -c1-120)"; for t in $p/task/*; do echo "  $(cat $t/comm) $(cat $t/wchan) $(cat $t/syscall) $(head -n 3 $t/stack | paste -sd" ")"; done ;; esac; done'

# wait_kubectl SECONDS WHAT ARGUMENTS...
wait_kubectl() {
    local deadline=$((SECONDS + $1)) what=$2; shift 2
    while [ "$SECONDS" -lt "$deadline" ]; do
        kubectl wait --timeout="$((deadline - SECONDS))s" "$@" >"$work/kubectl.log" 2>&1 && return
        sleep 0.2
    done
    { cat "$work/kubectl.log"; kubectl get pods,nodes -o wide; kubectl get events; board 60 "journalctl -b --no-pager -n 60"; board 60 "$stuck_command"; } >&2 || true
    board_failed "$what: not so in time"
}

daemon_pid() { board 30 "systemctl show -p MainPID --value edge-runtime.service"; }
containers() { board 60 "edge-runtime ps" | awk '$4 == "Running" {print $2, $6}' | sort; }

# A token's command for this node, as a person would copy it.
join_command() { "$bridge" token create "$1" --state "$top/bridge" | sed -n 's/^  \(echo .* | \)sudo /\1/p'; }

# figure NAME VALUE: a line of the result.
figure() { figures="$figures,\"$1\":$2"; }
board_apt() { board 600 "DEBIAN_FRONTEND=noninteractive apt-get -qq -o=Dpkg::Use-Pty=0 $*"; }
snapshot() { board 60 "sync; sleep 2; true"; board 180 "sh /root/snapshot" >"$work/$1"; }
# same BEFORE AFTER WHAT: two snapshots have to be equal.
same() { diff "$work/$1" "$work/$2" >"$work/left" || { cat "$work/left" >&2; board_failed "$3: this is not as before"; }; }

first_day() {
    local arch=$1 node=board-$1 figures='' pods
    set_up "$arch"
    say "$arch: power on"
    board_on 1
    figure boot_seconds "$boot_seconds"
    say "up after $boot_seconds s: $(board 30 'uname -rm; awk "/MemTotal/ {print int(\$2 / 1024) \" MB\"}" /proc/meminfo; stat -fc %T /sys/fs/cgroup' | paste -sd' ')"
    board 180 "systemctl is-system-running --wait; udevadm settle 2>/dev/null; true"
    snapshot before
    install_package
    join_board
    run_pods
    [ -n "${SHORT:-}" ] || { upgrade_on_trial; take_next_package; }
    reset_board
    purge_board
    [ -n "${SHORT:-}" ] || first_boot "$arch"
    power_off
    mkdir -p "$repo/target/bench"
    printf '{"name":"first day, emulated %s, %s","steps":3%s}\n' "$arch" "$variant" "$figures" | tee "$repo/target/bench/package-machine-$arch-$variant.json"
}

set_up() {
    local arch=$1
    say "$arch: the machine's kernel, initramfs and disk"
    machine_of "$arch"
    packages_of "$arch"
    board_kernel "$work" "$arch"
    variant=${kernel_version%%-*}-cgroup-${CGROUPS:-v2}
    BUSYBOX=$(foreign_busybox "$arch") ARCH=$(case "$arch" in armhf) echo arm ;; *) echo "$arch" ;; esac) "$repo/scripts/lib/make-busybox-image.sh" "$work/busybox.tar"
    cp "$package" "$next_package" "$work/"
    package=$work/${package##*/} next_package=$work/${next_package##*/}
    trial_versions "$arch"
    # shellcheck disable=SC2046
    debian_disk "$work" "$arch" "$repo/scripts/lib/snapshot" "$package" "$next_package" "$work/busybox.tar" $(find "$work/trial" -type f)
    cp "$(foreign_busybox "$arch")" "$work/disk/bin/busybox"
    board_initramfs "$work"
    rm -rf "$work/disk" "$work/initramfs"
}

# board_on NUMBER: its serial log has that number.
board_on() { power_on "$work" "$work/serial-$1.log" -netdev user,id=net -device "virtio-net-$bus,netdev=net"; }

install_package() {
    local began; began=$(now)
    board_apt install "/root/${package##*/}" || board_failed "the package cannot be installed"
    figure install_seconds "$(elapsed "$began")"
    say "$arch: installed in $(elapsed "$began") s"
    # On a board that has not joined, no unit fails or retries.
    [ "$(board 30 'systemctl show -p ActiveState,SubState,NRestarts,Result --value edge-runtime.service' | paste -sd' ')" = "success 0 inactive dead" ] ||
        board_failed "before its join: $(board 30 'systemctl status edge-runtime.service; systemctl show -p ActiveState,SubState,NRestarts,Result edge-runtime.service')"
    board 30 "systemctl is-enabled edge-runtime.service edge-runtime-firstboot.service" || board_failed "the units are not enabled"
    snapshot installed
}

join_board() {
    local command pid began
    command=$(join_command "$node")
    began=$(now)
    board 300 "$command" || { board 60 "journalctl -b --no-pager -n 60" >&2; board_failed "the board could not join"; }
    figure join_seconds "$(elapsed "$began")"
    wait_kubectl 20 "node $node" --for=condition=Ready "node/$node"
    say "$arch: one command, $(elapsed "$began") s, and the node is Ready"
    board 60 "edge-runtime status" || board_failed "no status"
    pid=$(daemon_pid)
    board 300 "$command" || board_failed "a second run of the same command fails"
    [ "$(daemon_pid)" = "$pid" ] || board_failed "a second run started the daemon anew"
}

run_pods() {
    local began number
    board 120 "edge-runtime import /root/busybox.tar" || board_failed "the image could not be imported"
    # What the import and the join have used is given back.
    board 60 "sleep 20"
    measure idle
    began=$(now)
    for number in 1 2 3; do machine_pod "$node" "$number"; done | kubectl apply -f -
    pods_ready "the pods"
    figure pods_seconds "$(elapsed "$began")"
    pods=$(containers)
    board 60 "sleep 10"
    measure three_pods
}

pods_ready() { wait_kubectl 240 "$1" --for=condition=Ready "pod/$node-1" "pod/$node-2" "pod/$node-3"; }
same_containers() { [ "$(containers)" = "$pods" ] || board_failed "$1: the containers were '$pods' and are '$(containers)'"; }

take_next_package() {
    local began pid; pid=$(daemon_pid) began=$(now)
    board_apt install "/root/${next_package##*/}" || board_failed "the next package cannot be installed"
    figure next_package_seconds "$(elapsed "$began")"
    [ "$(daemon_pid)" != "$pid" ] || board_failed "the daemon of the old package still runs"
    pods_ready "the pods with the next package"
    same_containers "with the next package"
    say "$arch: the next package in $(elapsed "$began") s, the containers are the same processes"
}

# What `join` and the node have done is undone, and what came with the package is there.
reset_board() {
    local began took; began=$(now)
    board 120 "edge-runtime reset --all --yes" || board_failed "it cannot be reset"
    took=$(elapsed "$began")
    figure reset_seconds "$took"
    snapshot reset
    same installed reset "reset"
    say "$arch: reset in $took s: as when the package had just come"
    forget_node
}

# purge_board: files, mounts, rules, links, cgroups, users and units are as before the package.
purge_board() {
    local began took; began=$(now)
    board_apt purge edge-runtime || board_failed "it cannot be purged"
    took=$(elapsed "$began")
    figure "${1:-}purge_seconds" "$took"
    board 60 "systemctl daemon-reload; systemctl reset-failed"
    snapshot after
    same before after "purged"
    say "$arch: purged in $took s: files, mounts, rules, links, cgroups, users and units as before ($(wc -l <"$work/before") lines)"
}

forget_node() {
    kubectl delete node "$node" --timeout=30s >/dev/null || true
    kubectl delete pods --all --force --grace-period=0 >/dev/null 2>&1 || true
}

# measure NAME: PSS of daemon, monitor and helpers, in bytes.
measure() {
    local pss; pss=$(board 60 "$machine_pss_command")
    figure "$1_pss_bytes" "{$pss}"
    say "$arch: PSS $1: $pss"
}
machine_pss_command='for p in /proc/[0-9]*; do case "$(readlink $p/exe)" in /*/lib/edge-runtime/*) echo "$(cat $p/comm) $(awk "/^Pss:/ {print \$2}" $p/smaps_rollup)" ;; esac; done | awk "{kb[\$1] += \$2; all += \$2} END {for (name in kb) printf \"\\\"%s\\\":%d,\", name, kb[name] * 1024; printf \"\\\"all\\\":%d\\n\", all * 1024}"'

# A card that was flashed with the package and a file, and a board that is only switched on.
first_boot() {
    local arch=$1 node=card-$1 began
    say "$arch: a card with a file for the first boot"
    board_apt install "/root/${package##*/}" || board_failed "the package cannot be installed again"
    "$bridge" token create "$node" --state "$top/bridge" --file "$work/join"
    board 30 "mkdir -p /boot/firmware; echo $(base64 -w0 <"$work/join") | base64 -d >/boot/firmware/edge-runtime.join; echo 'label: sampan.dev/site=hall-3' >>/boot/firmware/edge-runtime.join; sync"
    power_off
    board_on first-boot
    began=$(now)
    wait_kubectl 240 "node $node" --for=condition=Ready "node/$node"
    figure first_boot_seconds "$(elapsed "$began")"
    [ "$(kubectl get node "$node" -o 'jsonpath={.metadata.labels.sampan\.dev/site}')" = hall-3 ] || board_failed "the label of the file is not the node's"
    board 30 "test ! -e /boot/firmware/edge-runtime.join && test ! -e /boot/firmware/edge-runtime.join.failed" || board_failed "the file is still there"
    say "$arch: switched on, and a node $(elapsed "$began") s after the boot; the file is gone"
    # With pods that run, and by one command.
    board 120 "edge-runtime import /root/busybox.tar" || board_failed "the image could not be imported"
    for number in 1 2 3; do machine_pod "$node" "$number"; done | kubectl apply -f -
    pods_ready "the pods of the card"
    board 30 "rmdir /boot/firmware"
    purge_board pods_
    forget_node
}

foreign_busybox() {
    local dir=$repo/.cache/foreign/$1/busybox
    if [ ! -x "$dir/bin/busybox" ]; then
        mkdir -p "$dir"
        dpkg-deb -x "$(foreign_deb "$1" busybox-static)" "$dir"
    fi
    echo "$dir/bin/busybox"
}
