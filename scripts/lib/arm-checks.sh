# What is asked of the node on the board. Sourced after arm-qemu.sh.

# PSS of our processes on the board, in bytes, and who they are.
pss_command='for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = /usr/bin/edge-runtime ] && cat $p/smaps_rollup; done | awk "/^Pss:/ {s += \$2} END {print s * 1024}"'
processes_command='for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = /usr/bin/edge-runtime ] && echo "$(tr "\0" " " <$p/cmdline | cut -d" " -f2) $(awk "/^Pss:/ {print \$2}" $p/smaps_rollup) kB,"; done'
daemon_command='for p in /proc/[0-9]*; do tr "\0" " " <$p/cmdline | grep -q "^/usr/bin/edge-runtime run" && basename $p; done'

# board_pod NUMBER: its memory limit is 16 MiB more with each number; it tells the board's uptime when it runs.
board_pod() {
    cat <<YAML
---
apiVersion: v1
kind: Pod
metadata:
  name: board-$1
spec:
  nodeName: board
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: docker.io/library/busybox:latest
      imagePullPolicy: IfNotPresent
      command: [sh, -c, 'read -r up idle </proc/uptime; echo "up \$up"; exec sleep 1000000']
      resources:
        limits:
          memory: $((16 * $1))Mi
YAML
}

kubectl_waits() {
    local deadline=$((SECONDS + $1)) what=$2; shift 2
    # kubectl gives up at once on what is not there yet.
    while [ "$SECONDS" -lt "$deadline" ]; do
        kubectl wait --timeout="$((deadline - SECONDS))s" "$@" >"$work/kubectl.log" 2>&1 && return
        sleep 0.2
    done
    { cat "$work/kubectl.log"; board 10 "ps | grep -v ];"; kubectl get pods,nodes -o wide; kubectl get events; tail -n 5 "$work/bridge.log"; } >&2 || true
    board_failed "$what: not so in time"
}

# Lines of "POD PID" of the running containers, as the board itself knows them.
running_pids() { board 15 "edge-runtime ps" | awk '$4 == "Running" {print $2, $6}' | sort; }

check_limits() {
    local pod pid limit pods
    pods=$(running_pids)
    [ "$(wc -l <<<"$pods")" = 3 ] || board_failed "three running containers expected, the board has: $pods"
    while read -r pod pid; do
        limit=$(board 10 "cat /sys/fs/cgroup\$(cut -d: -f3 /proc/$pid/cgroup)/memory.max") || board_failed "pid $pid has no memory.max"
        [ "$limit" = $((16 * ${pod#board-} << 20)) ] || board_failed "$pod: memory.max is $limit, not $((16 * ${pod#board-} << 20))"
        say "$pod: pid $pid, memory.max $limit"
    done <<<"$pods"
}

# Sets back_seconds: from the kill until the new daemon has started a pod asked for after it.
check_daemon_killed() {
    local before old new began
    before=$(running_pids)
    old=$(board 10 "$daemon_command")
    began=$(now)
    board 10 "kill -9 $old"
    board_pod 4 | kubectl apply -f -
    kubectl_waits 60 "a pod asked for while the daemon was dead" --for=condition=Ready pod/board-4
    back_seconds=$(elapsed "$began")
    new=$(board 10 "$daemon_command")
    [ -n "$new" ] && [ "$new" != "$old" ] || board_failed "the daemon was pid '$old' and is '$new'"
    [ "$(running_pids | grep -v '^board-4 ')" = "$before" ] || board_failed "the pods were '$before' and are '$(running_pids)'"
    kubectl get pods
    [ -z "$(kubectl get pods -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}' | tr -d ' 0')" ] || board_failed "a container was restarted"
    say "daemon $old -> $new; the three containers are the same processes; another pod is Ready $back_seconds s after the kill"
    kubectl delete pod board-4 --timeout=30s || board_failed "the fourth pod could not be deleted"
}

# Prints the seconds from the daemon's start until the last of the three containers ran.
check_offline() {
    local deadline=$((SECONDS + 60)) rows=
    until [ "$(grep -c . <<<"$rows")" = 3 ]; do
        [ "$SECONDS" -lt "$deadline" ] || board_failed "the pods do not run again within 60 s: $rows"
        sleep 1
        rows=$(running_pids)
    done
    board 10 'ip link show eth0 2>/dev/null' >&2 && board_failed "the board has a network device" >&2
    board 10 'cat /run/node-started; for log in $(ls -t /var/log/pods/default_board-*/main/*.log | head -n 3); do sed -n "s/.* F up //p" $log; done' |
        awk 'NR == 1 {began = $1; next} $1 > last {last = $1} END {if (NR != 4) exit 1; printf "%.1f\n", last - began}'
}
