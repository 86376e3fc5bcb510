# The largest Service that a node takes: how long the board's kernel works on it. Sourced after arm-checks.sh.
# shellcheck shell=bash disable=SC2034,SC2154

largest_ports=250
largest_endpoints=11
# Goal in seconds for one transaction (docs/services.md), on a quiet host: nft holds the lock of network devices meanwhile.
largest_budget=1

# 250 ports with 11 endpoints each are the 3,000 parts that a node takes of one Service (edge-runtime/src/net/services/bounds.rs).
largest_service() {
    python3 - "$largest_ports" "$largest_endpoints" <<'PY'
import json, sys
ports, endpoints = map(int, sys.argv[1:])
named = [{"name": f"p{port}", "port": port} for port in range(1, ports + 1)]
meta = {"name": "largest", "namespace": "default"}
print(json.dumps({"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": named}},
    {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": named,
     "metadata": {**meta, "labels": {"kubernetes.io/service-name": "largest"}},
     "endpoints": [{"addresses": [f"192.0.2.{index + 1}"]} for index in range(endpoints)]},
]}))
PY
}

# Sets largest_seconds: what nft takes for the rules of this Service in one transaction, in an empty network namespace.
check_largest_service() {
    local deadline=$((SECONDS + 120)) rules=0 wanted=$((largest_ports * largest_endpoints)) times
    largest_service | kubectl apply -f -
    until [ "$rules" -ge "$wanted" ]; do
        [ "$SECONDS" -lt "$deadline" ] || node_failed "the rules of the largest Service have $rules of $wanted endpoints"
        sleep 1
        rules=$(board 60 "nft list ruleset >/run/rules; grep -o '192\.0\.2\.[0-9]* \. [0-9]' /run/rules | wc -l")
    done
    # The fastest of three: other work of the board and of this host does not count.
    times=$(board 120 "for run in 1 2 3; do unshare -n sh -c 'read -r before rest </proc/uptime; nft -f /run/rules || exit 1; read -r after rest </proc/uptime; echo \$before \$after'; done; rm /run/rules")
    largest_seconds=$(awk 'NF == 2 {took = $2 - $1; if (!least || took < least) least = took; runs++} END {if (runs == 3) print least}' <<<"$times")
    [ -n "$largest_seconds" ] || node_failed "the rules of the largest Service could not be loaded: $times"
    say "the largest Service, $rules rules of endpoints: one transaction of nft takes $largest_seconds s (budget $largest_budget)"
    kubectl delete service largest --timeout=30s
    kubectl delete endpointslice largest --ignore-not-found --timeout=30s
}
