# A device behind the board: a value that comes over MQTT, and one that is desired. Sourced after arm-checks.sh.

helper_command='for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = /usr/bin/edge-devices ] && cat $p/smaps_rollup; done | awk "/^Pss:/ {s += \$2} END {print s * 1024}"'

device_objects() {
    cat <<'YAML'
apiVersion: devices.kubeedge.io/v1beta1
kind: DeviceModel
metadata: {name: lab}
spec:
  properties:
    - {name: temp, type: FLOAT, accessMode: ReadOnly}
    - {name: led, type: STRING, accessMode: ReadWrite}
---
apiVersion: devices.kubeedge.io/v1beta1
kind: Device
metadata: {name: t1}
spec:
  deviceModelRef: {name: lab}
  nodeName: board
  properties: [{name: temp}, {name: led, desired: {value: "ON"}}]
YAML
}

# mqtt_string TEXT: with its length before it, as MQTT 3.1.1 has strings (below 256 bytes).
mqtt_string() { printf '\0'; printf "\\x$(printf %02x "${#1}")"; printf %s "$1"; }

# mqtt_publish TOPIC TEXT: the octets of a client that connects, publishes with QoS 0 and goes; below 128 octets each.
mqtt_publish() {
    printf '\x10\x10\0\x04MQTT\x04\x02\0\x3c\0\x04test'
    printf '\x30'
    printf "\\x$(printf %02x $((2 + ${#1} + ${#2})))"
    mqtt_string "$1"
    printf '%s\xe0\0' "$2"
}

# Sets devices_pss (bytes of the helper) and device_seconds (from MQTT on the board to the API).
check_devices() {
    local daemon octets began deadline=$((SECONDS + 90)) value=
    kubectl apply -f "$repo/cloud-bridge/deploy/devices/crds.yaml"
    kubectl_waits 30 "the definitions of devices" --for=condition=Established crd/devices.devices.kubeedge.io crd/devicestatuses.devices.kubeedge.io
    device_objects | kubectl apply -f -
    daemon=$(board 10 "$daemon_command")
    board 10 "mkdir -p /etc/edge-runtime; echo 'device-twin: {listen: {}}' >/etc/edge-runtime/config.yaml; kill $daemon"
    until board 10 "edge-runtime devices 2>&1; true" | grep -q 't1 '; do
        [ "$SECONDS" -lt "$deadline" ] || board_failed "the board does not know its device: $(board 10 'edge-runtime devices 2>&1; true')"
        sleep 1
    done
    # shellcheck disable=SC2016
    octets=$(mqtt_publish '$hw/events/device/default/t1/twin/update' '{"event_id":"1","twin":{"temp":{"actual":{"value":"21.5"}}}}' | od -An -v -to1 | tr -d '\n' | sed 's/ /\\/g')
    began=$(now)
    board 15 "printf '$octets' | nc -w 5 127.0.0.1 1884 >/dev/null; true"
    until [ "$value" = 21.5 ]; do
        [ "$SECONDS" -lt "$deadline" ] || board_failed "the value does not come: $(kubectl get devicestatus t1 -o yaml 2>&1) $(board 10 'edge-runtime devices get 2>&1; true')"
        value=$(kubectl get devicestatus t1 -o 'jsonpath={.status.twins[?(@.propertyName=="temp")].reported.value}' 2>/dev/null) || sleep 0.3
    done
    device_seconds=$(elapsed "$began")
    board 10 "edge-runtime devices set t1 led=OFF" || board_failed "nothing can be wanted on the board"
    devices_pss=$(board 10 "$helper_command")
    say "a value over MQTT is in the API after $device_seconds s; edge-devices: $devices_pss bytes PSS"
    kubectl delete device/t1 devicemodel/lab --timeout=30s || board_failed "the device could not be deleted"
    daemon=$(board 10 "$daemon_command")
    board 10 "rm /etc/edge-runtime/config.yaml; kill $daemon"
}
