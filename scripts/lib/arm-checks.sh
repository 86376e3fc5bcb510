# What is asked of the node on the board. Sourced after machine.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# PSS of our processes on the board, in bytes, and who they are.
pss_command='for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = /usr/bin/edge-runtime ] && cat $p/smaps_rollup; done | awk "/^Pss:/ {s += \$2} END {print s * 1024}"'
# Processes that end meanwhile have no files.
processes_command='{ for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = /usr/bin/edge-runtime ] && echo "$(tr "\0" " " <$p/cmdline | cut -d" " -f2) $(awk "/^Pss:/ {all = \$2} /^Pss_Anon:/ {print all \" kB (\" \$2 \" anonymous)\"}" $p/smaps_rollup),"; done; } 2>/dev/null; true'
daemon_command='{ for p in /proc/[0-9]*; do tr "\0" " " <$p/cmdline | grep -q "^/usr/bin/edge-runtime run" && basename $p; done; } 2>/dev/null; true'

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

# What the node itself says, for a report of failure.
node_tells() { board 15 "edge-runtime ps -a; tail -n 20 /run/edge-runtime/monitor.log; tail -n 3 /var/log/pods/default_board-*/*/*.log; true"; }
node_failed() { node_tells >&2; board_failed "$@"; }

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

# Sets offline_seconds: from the daemon's start until the last of the three containers ran, by the board's own clock.
check_offline() {
    local deadline=$((SECONDS + 120)) rows='' ups=''
    # The log of attempt 0 is that of the boot before.
    local tell='for log in /var/log/pods/default_board-*/main/[1-9]*.log; do sed -n "s/.* F up //p" $log; done 2>/dev/null; true'
    until [ "$(grep -c . <<<"$rows")" = 3 ] && [ "$(grep -c . <<<"$ups")" -ge 3 ]; do
        [ "$SECONDS" -lt "$deadline" ] || node_failed "the pods do not all run again within 120 s: $rows $ups"
        sleep 1
        rows=$(running_pids)
        ups=$(board 10 "$tell")
    done
    # Whole names: a pod's link on the host side may be called veth0..., which holds "eth0".
    local devices; devices=$(board 10 'ls -1 /sys/class/net')
    grep -qx lo <<<"$devices" || board_failed "the board does not tell its network devices: $devices"
    ! grep -qx eth0 <<<"$devices" || board_failed "the board has a network device: $devices"
    [ "$(grep -c . <<<"$ups")" = 3 ] || { say "more starts than pods, at" $ups "s of uptime:"; node_tells; } >&2
    local started; started=$(board 10 'cat /run/node-started')
    offline_seconds=$(awk -v began="$started" '$1 > last {last = $1} END {printf "%.1f", last - began}' <<<"$ups")
}

# The cloud learns what happened while it was away. How often a container was restarted is not synced to the disk at
# once, so the second power cut may have cost the count of the first: never below 1, and the same on both sides.
check_reconnected() {
    local deadline=$((SECONDS + 120)) here='' there=''
    kubectl_waits 60 "node board after its return" --for=condition=Ready node/board
    until [ "$(grep -c ' [12]$' <<<"$here")" = 3 ] && [ "$here" = "$there" ]; do
        [ "$SECONDS" -lt "$deadline" ] || node_failed "restarts as the board knows them: '$here', as the API does: '$there'"
        sleep 0.5
        here=$(board 15 "edge-runtime ps" | awk '$4 == "Running" {print $2, $5}' | sort)
        there=$(kubectl get pods -o jsonpath='{range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount}{"\n"}{end}' | sort)
    done
    kubectl_waits 60 "the pods after the node's return" --for=condition=Ready pod/board-1 pod/board-2 pod/board-3
    kubectl get pods
}
