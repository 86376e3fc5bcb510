# Devices behind the board: a value that comes over MQTT and one that is desired, and a thermometer of a mapper. Sourced after
# arm-checks.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# pss_of PROGRAM: bytes that it has on the board.
pss_of() { board 10 'for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = /usr/bin/'"$1"' ] && cat $p/smaps_rollup; done | awk "/^Pss:/ {s += \$2} END {print s * 1024}"'; }

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

# What the 1-wire bus shows of a thermometer at 23.125 degrees, as the kernel's w1_therm writes it.
thermometer() {
    board 10 'mkdir -p /run/w1/28-0316a2795dff; printf "72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n72 01 4b 46 7f ff 0e 10 57 t=23125\n" >/run/w1/28-0316a2795dff/w1_slave'
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

# shown DEVICE PROPERTY VALUE DEADLINE: waits until the API has it.
shown() {
    local value=
    until [ "$value" = "$3" ]; do
        [ "$SECONDS" -lt "$4" ] || board_failed "$2 of $1 is no $3: $(kubectl get "devicestatus/$1" -o yaml 2>&1) $(board 10 'edge-runtime devices 2>&1; edge-runtime devices mappers 2>&1; true')"
        value=$(kubectl get devicestatus "$1" -o "jsonpath={.status.twins[?(@.propertyName==\"$2\")].reported.value}" 2>/dev/null) || sleep 0.3
    done
}

# devices_with SETTINGS: the daemon again, with these.
devices_with() {
    local daemon
    daemon=$(board 10 "$daemon_command")
    board 10 "mkdir -p /etc/edge-runtime; echo 'device-twin: $1' >/etc/edge-runtime/config.yaml; kill $daemon"
}

# Sets devices_pss (bytes of the helper with one device, and then with its mapper), mapper_pss, and device_seconds and
# mapper_seconds (from MQTT on the board, and from the Device in the API, to the value there).
check_devices() {
    local daemon octets began deadline=$((SECONDS + 90))
    kubectl apply -f "$repo/deploy/bridge/devices/crds.yaml"
    kubectl_waits 30 "the definitions of devices" --for=condition=Established crd/devices.devices.kubeedge.io crd/devicestatuses.devices.kubeedge.io
    device_objects | kubectl apply -f -
    devices_with '{listen: {}}'
    until board 10 "edge-runtime devices 2>&1; true" | grep >/dev/null 't1 '; do
        [ "$SECONDS" -lt "$deadline" ] || board_failed "the board does not know its device: $(board 10 'edge-runtime devices 2>&1; true')"
        sleep 1
    done
    # shellcheck disable=SC2016
    octets=$(mqtt_publish '$hw/events/device/default/t1/twin/update' '{"event_id":"1","twin":{"temp":{"actual":{"value":"21.5"}}}}' | od -An -v -to1 | tr -d '\n' | sed 's/ /\\/g')
    began=$(now)
    board 15 "printf '$octets' | nc -w 5 127.0.0.1 1884 >/dev/null; true"
    shown t1 temp 21.5 "$deadline"
    device_seconds=$(elapsed "$began")
    board 10 "edge-runtime devices set t1 led=OFF" || board_failed "nothing can be wanted on the board"
    devices_pss=$(pss_of edge-devices)
    say "a value over MQTT is in the API after $device_seconds s; edge-devices: $devices_pss bytes PSS"
    check_mapper
    kubectl delete device/t1 devicemodel/lab --timeout=30s || board_failed "the device could not be deleted"
    daemon=$(board 10 "$daemon_command")
    board 10 "rm /etc/edge-runtime/config.yaml; kill $daemon"
}

check_mapper() {
    local began deadline=$((SECONDS + 90))
    devices_with '{listen: {}, dmi: {}}'
    thermometer
    until board 10 'ls /etc/kubeedge/dmi.sock 2>&1; true' | grep >/dev/null '^/etc'; do
        [ "$SECONDS" -lt "$deadline" ] || board_failed "there is no socket for mappers"
        sleep 1
    done
    board 10 "edge-mapper --protocol onewire --onewire /run/w1 </dev/null >/run/mapper.log 2>&1 &"
    until board 10 "edge-runtime devices mappers 2>&1; true" | grep >/dev/null onewire; do
        [ "$SECONDS" -lt "$deadline" ] || board_failed "the mapper does not register: $(board 10 'cat /run/mapper.log')"
        sleep 1
    done
    began=$(now)
    sed 's/nodeName: .*/nodeName: board/; s/collectCycle: .*, /collectCycle: 1000, /' "$repo/examples/mapper/onewire.yaml" | kubectl apply -f -
    shown cellar temperature 23.125 "$deadline"
    mapper_seconds=$(elapsed "$began")
    devices_pss="$devices_pss, $(pss_of edge-devices)"
    mapper_pss=$(pss_of edge-mapper)
    say "a thermometer that the API has just been told of is read and shown there after $mapper_seconds s; edge-devices, edge-mapper: ${devices_pss#*, }, $mapper_pss bytes PSS"
    kubectl delete device/cellar devicemodel/ds18b20 --timeout=30s || board_failed "the thermometer could not be deleted"
    board 10 'for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" != /usr/bin/edge-mapper ] || kill ${p#/proc/}; done; true'
}
