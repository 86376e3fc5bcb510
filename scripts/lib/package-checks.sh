# What is asked of a board on its first day. Sourced after machine.sh and debian-board.sh.

machine_of() {
    case "$1" in
        amd64) machine=(-M q35 -cpu max -smp 2 -m 1024) console=ttyS0 bus=pci; need_qemu x86_64 qemu-system-x86 ;;
        arm64) machine=(-M virt -cpu cortex-a53 -m 512) console=ttyAMA0 bus=device; need_qemu aarch64 qemu-system-arm ;;
        armhf) machine=(-M "virt,highmem=off" -cpu cortex-a7 -m 512) console=ttyAMA0 bus=device; need_qemu arm qemu-system-arm ;;
    esac
}

# packages_of ARCH: sets package and next_package.
packages_of() {
    local arch=$1
    if [ -z "${PACKAGES:-}" ]; then
        "$repo/scripts/package" "$arch" --only deb --only board --out "$work/packages"
        PACKAGE_VERSION=0.1.1 "$repo/scripts/package" "$arch" --only deb --out "$work/next"
        package=$(echo "$work"/packages/*_"$arch".deb) next_package=$(echo "$work"/next/*_"$arch".deb)
    else
        package=$(echo "$PACKAGES"/edge-runtime_*_"$arch".deb) next_package=$(echo "${NEXT:?}"/edge-runtime_*_"$arch".deb)
    fi
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
join_command() { "$bridge" token create "$1" --state "$top/bridge" | sed -n 's/^  edge-runtime/edge-runtime/p'; }

first_day() {
    local arch=$1 node=board-$1 before after command pid pods began
    say "$arch: the machine's kernel, initramfs and disk"
    machine_of "$arch"
    packages_of "$arch"
    board_kernel "$work" "$arch"
    BUSYBOX=$(foreign_busybox "$arch") ARCH=$(case "$arch" in armhf) echo arm ;; *) echo "$arch" ;; esac) "$repo/scripts/lib/make-busybox-image.sh" "$work/busybox.tar"
    cp "$package" "$work/first.deb"
    cp "$next_package" "$work/next.deb"
    debian_disk "$work" "$arch" "$repo/scripts/lib/snapshot" "$work/first.deb" "$work/next.deb" "$work/busybox.tar"
    cp "$(foreign_busybox "$arch")" "$work/disk/bin/busybox"
    board_initramfs "$work"
    rm -rf "$work/disk" "$work/initramfs"

    say "$arch: power on"
    network="-netdev user,id=net -device virtio-net-$bus,netdev=net"
    # shellcheck disable=SC2086
    power_on "$work" "$work/serial-1.log" $network
    say "up after $boot_seconds s: $(board 30 'uname -rm; awk "/MemTotal/ {print int(\$2 / 1024) \" MB\"}" /proc/meminfo; stat -fc %T /sys/fs/cgroup' | paste -sd' ')"
    board 120 "systemctl is-system-running --wait; udevadm settle 2>/dev/null; sync; sleep 2; true"
    board 120 "sh /root/snapshot" >"$work/before"

    began=$(now)
    board 300 "DEBIAN_FRONTEND=noninteractive dpkg -i /root/first.deb" || board_failed "the package cannot be installed"
    package_seconds=$(elapsed "$began")
    say "$arch: installed in $package_seconds s"
    # A board that is no node has nothing that fails and nothing that tries.
    [ "$(board 30 'systemctl show -p ActiveState,SubState,NRestarts,Result --value edge-runtime.service' | paste -sd' ')" = "success 0 inactive dead" ] ||
        board_failed "before its join: $(board 30 'systemctl status edge-runtime.service; systemctl show -p ActiveState,SubState,NRestarts,Result edge-runtime.service')"
    board 30 "systemctl is-enabled edge-runtime.service edge-runtime-firstboot.service" || board_failed "the units are not enabled"

    command=$(join_command "$node")
    began=$(now)
    board 300 "$command" || { board 60 "journalctl -b --no-pager -n 60" >&2; board_failed "the board could not join"; }
    join_seconds=$(elapsed "$began")
    wait_kubectl 20 "node $node" --for=condition=Ready "node/$node"
    say "$arch: one command, $join_seconds s, and the node is Ready"
    pid=$(daemon_pid)
    board 300 "$command" || board_failed "a second run of the same command fails"
    [ "$(daemon_pid)" = "$pid" ] || board_failed "a second run started the daemon anew"

    board 120 "edge-runtime import /root/busybox.tar" || board_failed "the image could not be imported"
    for number in 1 2 3; do machine_pod "$node" "$number"; done | kubectl apply -f -
    wait_kubectl 180 "the pods" --for=condition=Ready "pod/$node-1" "pod/$node-2" "pod/$node-3"
    pods=$(containers)
    pss=$(board 60 "$machine_pss_command")
    say "$arch: three pods; PSS of daemon and monitor $pss bytes"

    began=$(now)
    board 300 "DEBIAN_FRONTEND=noninteractive dpkg -i /root/next.deb" || board_failed "the next package cannot be installed"
    upgrade_seconds=$(elapsed "$began")
    [ "$(daemon_pid)" != "$pid" ] || board_failed "the daemon of the old package still runs"
    wait_kubectl 60 "the pods after the upgrade" --for=condition=Ready "pod/$node-1" "pod/$node-2" "pod/$node-3"
    [ "$(containers)" = "$pods" ] || board_failed "the containers were '$pods' and are '$(containers)'"
    say "$arch: another version in $upgrade_seconds s, the containers are the same processes"

    began=$(now)
    board 300 "DEBIAN_FRONTEND=noninteractive dpkg --purge edge-runtime" || board_failed "it cannot be purged"
    purge_seconds=$(elapsed "$began")
    board 60 "systemctl daemon-reload; systemctl reset-failed; sync; sleep 2; true"
    board 120 "sh /root/snapshot" >"$work/after"
    diff "$work/before" "$work/after" >"$work/left" || { cat "$work/left" >&2; board_failed "purged, and this is not as before"; }
    say "$arch: purged in $purge_seconds s: files, mounts, rules, links, cgroups, users and units as before ($(wc -l <"$work/before") lines)"
    kubectl delete node "$node" --timeout=30s >/dev/null || true
    kubectl delete pods --all --force --grace-period=0 >/dev/null 2>&1 || true

    first_boot "$arch"
    power_off
    mkdir -p "$repo/target/bench"
    printf '{"name":"first day, emulated %s","boot_seconds":%s,"install_seconds":%s,"join_seconds":%s,"upgrade_seconds":%s,"purge_seconds":%s,"first_boot_seconds":%s,"three_pods_pss_bytes":%s}\n' \
        "$arch" "$boot_seconds" "$package_seconds" "$join_seconds" "$upgrade_seconds" "$purge_seconds" "$first_boot_seconds" "$pss" | tee "$repo/target/bench/package-machine-$arch.json"
}

# PSS of our processes on the board, in bytes.
machine_pss_command='for p in /proc/[0-9]*; do case "$(readlink $p/exe)" in /usr/lib/edge-runtime/*) cat $p/smaps_rollup ;; esac; done | awk "/^Pss:/ {s += \$2} END {print s * 1024}"'

# A card that was flashed with the package and a file, and a board that is only switched on.
first_boot() {
    local arch=$1 node=card-$1
    say "$arch: a card with a file for the first boot"
    board 300 "DEBIAN_FRONTEND=noninteractive dpkg -i /root/first.deb" || board_failed "the package cannot be installed again"
    "$bridge" token create "$node" --state "$top/bridge" --file "$work/join"
    board 30 "mkdir -p /boot/firmware; echo $(base64 -w0 <"$work/join") | base64 -d >/boot/firmware/edge-runtime.join; echo 'label: sampan.dev/site=hall-3' >>/boot/firmware/edge-runtime.join; sync"
    power_off
    # shellcheck disable=SC2086
    power_on "$work" "$work/serial-2.log" $network
    local began; began=$(now)
    wait_kubectl 240 "node $node" --for=condition=Ready "node/$node"
    first_boot_seconds=$(elapsed "$began")
    [ "$(kubectl get node "$node" -o 'jsonpath={.metadata.labels.sampan\.dev/site}')" = hall-3 ] || board_failed "the label of the file is not the node's"
    board 30 "test ! -e /boot/firmware/edge-runtime.join && test ! -e /boot/firmware/edge-runtime.join.failed" || board_failed "the file is still there"
    say "$arch: switched on, and a node $first_boot_seconds s after the boot; the file is gone"
}

foreign_busybox() {
    local dir=$repo/.cache/foreign/$1/busybox
    if [ ! -x "$dir/bin/busybox" ]; then
        mkdir -p "$dir"
        dpkg-deb -x "$(foreign_deb "$1" busybox-static)" "$dir"
    fi
    echo "$dir/bin/busybox"
}
