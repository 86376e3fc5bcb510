# The programs of a node replaced on trial: one that is good, one that is bad, one whose power goes. Sourced after package-checks.sh.
# shellcheck shell=bash disable=SC2034,SC2154

trial_seconds=30

# trial_versions ARCH: signed bundles in $work/trial: `good.tar`, which scripts/package made, and `bad.tar`, whose daemon passes
# all that is looked at beforehand and ends as soon as it is the node's; public_key is whose signature they have.
trial_versions() {
    local tree=$work/bad to=$work/trial one
    need openssl openssl
    mkdir -p "$tree" "$to"
    cp "$bundle" "$to/good.tar"
    tar -x -C "$tree" -f "$bundle"
    cat >"$tree/edge-runtime" <<'DAEMON'
#!/bin/sh
case "$1 $2" in "run --print-config") ;; run*) echo "a version that is bad" >&2; exit 9 ;; esac
exec /usr/lib/edge-runtime/edge-runtime "$@"
DAEMON
    one=$(sed -n 's/.*"version": "\(.*\)".*/\1/p' "$tree/manifest.json")
    SOURCE_DATE_EPOCH=0 python3 "$repo/scripts/lib/package/oci.py" manifest "$one" "$(sed -n 's/.*"architecture": "\(.*\)".*/\1/p' "$tree/manifest.json")" \
        "$tree" edge-admin edge-api edge-devices edge-plugins edge-runtime >"$work/manifest.json"
    mv "$work/manifest.json" "$tree/manifest.json"
    tar -c -C "$tree" -f "$to/bad.tar" manifest.json edge-admin edge-api edge-devices edge-plugins edge-runtime
    openssl genpkey -algorithm ed25519 -out "$work/key.pem"
    public_key=$(openssl pkey -in "$work/key.pem" -pubout -outform DER | tail -c 32 | base64)
    for one in good bad; do
        printf 'sha256:%s' "$(sha256sum "$to/$one.tar" | cut -d' ' -f1)" >"$work/digest"
        openssl pkeyutl -sign -rawin -inkey "$work/key.pem" -in "$work/digest" | base64 -w0 >"$to/$one.tar.sig"
    done
}

daemon_program() { board 30 'readlink /proc/$(systemctl show -p MainPID --value edge-runtime.service)/exe'; }
runs_upgraded() { case "$(daemon_program)" in /var/lib/edge-runtime/versions/*) ;; *) return 1 ;; esac; }
runs_packaged() { [ "$(daemon_program)" = /usr/lib/edge-runtime/edge-runtime ]; }
upgraded_condition() { kubectl get node "$node" -o 'jsonpath={range .status.conditions[?(@.type=="Upgraded")]}{.status} {.message}{end}'; }
# shellcheck disable=SC2254  # a pattern
condition_says() { case "$(upgraded_condition)" in $1) ;; *) return 1 ;; esac; }
# node_says PATTERN: the Node's condition comes to be so.
node_says() {
    wait_for 60 "the condition" condition_says "$1" || board_failed "the condition Upgraded says '$(upgraded_condition)' and not '$1'"
    say "$arch: the Node says: $(upgraded_condition)"
}

upgrade_on_trial() {
    board 30 "printf 'upgrade: {keys: [\"$public_key\"], trial-seconds: $trial_seconds}\n' >>/etc/edge-runtime/config.yaml"
    upgrade_stays
    upgrade_back
    upgrade_goes_back
    upgrade_loses_power
}

upgrade_stays() {
    local began; began=$(now)
    board 30 "mv /root/good.tar.sig /root/kept"
    ! board 120 "edge-runtime upgrade /root/good.tar" || board_failed "a version that nobody has signed is taken"
    board 30 "mv /root/kept /root/good.tar.sig"
    runs_packaged || board_failed "what was refused runs: $(daemon_program)"
    began=$(now)
    board $((trial_seconds + 240)) "edge-runtime upgrade /root/good.tar" || board_failed "a good version did not stay: $(board 30 'journalctl -b --no-pager -n 60')"
    figure upgrade_seconds "$(elapsed "$began")"
    figure upgrade_trial_seconds "$trial_seconds"
    runs_upgraded || board_failed "after the upgrade $(daemon_program) runs"
    same_containers "after the upgrade"
    pods_ready "the pods after the upgrade"
    node_says "True *"
    say "$arch: another version on trial and in force after $(elapsed "$began") s, of which the trial is $trial_seconds; the containers are the same processes"
}

upgrade_back() {
    local began; began=$(now)
    board 120 "edge-runtime upgrade --back" || board_failed "the version before cannot be had again"
    wait_for 60 "the package's version" runs_packaged || board_failed "back, and $(daemon_program) runs"
    figure back_seconds "$(elapsed "$began")"
    same_containers "after going back"
    pods_ready "the pods after going back"
    say "$arch: back at the package's version in $(elapsed "$began") s"
}

upgrade_goes_back() {
    local began; began=$(now)
    ! board $((trial_seconds + 240)) "edge-runtime upgrade /root/bad.tar" || board_failed "a bad version stayed"
    figure bad_upgrade_seconds "$(elapsed "$began")"
    wait_for 60 "the package's version" runs_packaged || board_failed "after a bad version $(daemon_program) runs"
    same_containers "after a bad version"
    pods_ready "the pods after a bad version"
    node_says "False *ended 3 times*"
    say "$arch: a bad version is gone after $(elapsed "$began") s; the containers are the same processes"
}

# The power goes in the trial of a version that is good.
upgrade_loses_power() {
    local began
    board 120 "edge-runtime upgrade --no-wait --trial 600 /root/good.tar" || board_failed "no trial is begun"
    wait_for 60 "the version on trial" runs_upgraded || board_failed "on trial, and $(daemon_program) runs"
    board 30 "sleep 3"
    power_off
    board_on power-cut
    began=$(now)
    node_says "False *the machine was started anew during the trial"
    runs_packaged || board_failed "after a power cut $(daemon_program) runs"
    wait_for 180 "the pods again" all_run || board_failed "after a power cut there are: $(board 60 'edge-runtime ps')"
    pods_ready "the pods after a power cut"
    figure power_cut_seconds "$(elapsed "$began")"
    say "$arch: the power went in the trial: the old version and its pods $(elapsed "$began") s after the boot"
    pods=$(containers)
}
all_run() { [ "$(containers | wc -l)" = 3 ]; }
