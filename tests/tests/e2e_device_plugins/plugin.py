"""A device plugin with Google's gRPC (C core), as most plugins behave: it serves, registers, and registers again when the socket
of the node was made anew.

plugin.py ROOT RESOURCE FOLDER CDI IDS [pre-start]: offers the devices IDS (separated by commas). A container gets the node
/dev/gpu-ID, a mount of FOLDER at /plugin, the variable GPU_IDS, an annotation, and the CDI device CDI. Prints events, and takes
commands, one JSON text per line: {"health": {ID: "Unhealthy"}}, {"refuse": TEXT}.
"""

import concurrent.futures
import json
import os
import sys
import threading
import time

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Fields of the messages, by number; "*" for a list, "<" for a map of texts.
MESSAGES = {
    "Empty": "",
    "DevicePluginOptions": "pre_start_required=1:bool get_preferred_allocation_available=2:bool",
    "RegisterRequest": "version=1 endpoint=2 resource_name=3 options=4:DevicePluginOptions",
    "ListAndWatchResponse": "devices=1:*Device",
    "Device": "ID=1 health=2",
    "ContainerAllocateRequest": "devices_ids=1:*string",
    "AllocateRequest": "container_requests=1:*ContainerAllocateRequest",
    "AllocateResponse": "container_responses=1:*ContainerAllocateResponse",
    "ContainerAllocateResponse": "envs=1:<string mounts=2:*Mount devices=3:*DeviceSpec annotations=4:<string cdi_devices=5:*CDIDevice",
    "Mount": "container_path=1 host_path=2 read_only=3:bool",
    "DeviceSpec": "container_path=1 host_path=2 permissions=3",
    "CDIDevice": "name=1",
    "PreStartContainerRequest": "devices_ids=1:*string",
}


def messages():
    field = descriptor_pb2.FieldDescriptorProto
    plain = {"string": field.TYPE_STRING, "bool": field.TYPE_BOOL}
    file = descriptor_pb2.FileDescriptorProto(name="plugin.proto", package="plugin", syntax="proto3")

    def add(message, name, number, kind):
        one = message.field.add(name=name, number=number, label=field.LABEL_OPTIONAL)
        if kind[0] in "*<":
            one.label = field.LABEL_REPEATED
        if kind[0] == "<":
            entry = message.nested_type.add(name=name.capitalize() + "Entry")
            entry.options.map_entry = True
            add(entry, "key", 1, "string")
            add(entry, "value", 2, kind[1:])
            one.type, one.type_name = field.TYPE_MESSAGE, ".plugin." + message.name + "." + entry.name
            return
        kind = kind.lstrip("*")
        if kind in plain:
            one.type = plain[kind]
        else:
            one.type, one.type_name = field.TYPE_MESSAGE, ".plugin." + kind

    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for one in fields.split():
            field_name, _, kind = one.partition("=")
            number, _, kind = kind.partition(":")
            add(message, field_name, int(number), kind or "string")
    pool = descriptor_pool.Default()
    pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName("plugin." + name)) for name in MESSAGES}


M = messages()
ROOT, RESOURCE, FOLDER, CDI, IDS = sys.argv[1:6]
PRE_START = sys.argv[6:] == ["pre-start"]
SOCKETS = ROOT + "/device-plugins/"
ENDPOINT = RESOURCE.replace("/", "_") + ".sock"
health = {one: "Healthy" for one in IDS.split(",")}
changed = threading.Condition()
refusal = []
told = threading.Lock()


def say(**what):
    with told:
        print(json.dumps(what), flush=True)


def options():
    return M["DevicePluginOptions"](pre_start_required=PRE_START)


def list_and_watch(_, context):
    last = None
    while context.is_active():
        with changed:
            now = dict(health)
            if now == last:
                changed.wait(0.2)
                continue
        last = now
        devices = [M["Device"](ID=one, health=state) for one, state in now.items()]
        yield M["ListAndWatchResponse"](devices=devices).SerializeToString()


def allocate(message, context):
    answer = M["AllocateResponse"]()
    for container in M["AllocateRequest"].FromString(message).container_requests:
        ids = list(container.devices_ids)
        say(call="Allocate", ids=ids)
        if refusal:
            context.abort(grpc.StatusCode.INTERNAL, refusal[0])
        one = answer.container_responses.add(envs={"GPU_IDS": ",".join(ids), "OWN": "plugin"}, annotations={"example.com/gpu": ids[0]})
        one.mounts.add(container_path="/plugin", host_path=FOLDER, read_only=True)
        for device in ids:
            one.devices.add(container_path="/dev/gpu-" + device, host_path="/dev/zero", permissions="rw")
        one.cdi_devices.add(name=CDI)
    return answer.SerializeToString()


def pre_start(message, _):
    say(call="PreStartContainer", ids=list(M["PreStartContainerRequest"].FromString(message).devices_ids))
    return b""


class Handlers(grpc.GenericRpcHandler):
    def service(self, details):
        unary = grpc.unary_unary_rpc_method_handler
        return {
            "/v1beta1.DevicePlugin/GetDevicePluginOptions": unary(lambda *_: options().SerializeToString()),
            "/v1beta1.DevicePlugin/ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch),
            "/v1beta1.DevicePlugin/Allocate": unary(allocate),
            "/v1beta1.DevicePlugin/PreStartContainer": unary(pre_start),
        }.get(details.method)


def serve():
    if os.path.exists(SOCKETS + ENDPOINT):
        os.remove(SOCKETS + ENDPOINT)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), handlers=(Handlers(),))
    server.add_insecure_port("unix:" + SOCKETS + ENDPOINT)
    server.start()
    return server


def register():
    request = M["RegisterRequest"](version="v1beta1", endpoint=ENDPOINT, resource_name=RESOURCE, options=options())
    settings = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel("unix:" + SOCKETS + "kubelet.sock", options=settings) as channel:
        try:
            channel.unary_unary("/v1beta1.Registration/Register")(request.SerializeToString(), timeout=5)
            say(registered=True)
            return True
        except grpc.RpcError as error:
            say(refused=error.details() or error.code().name)
            return False


def made():
    try:
        seen = os.stat(SOCKETS + "kubelet.sock")
        return seen.st_ino, seen.st_ctime_ns
    except FileNotFoundError:
        return None


def follow():
    known, server = None, None
    while True:
        now = made()
        if now and now != known:
            if server:
                server.stop(None)
            server = serve()
            if register():
                known = now
        time.sleep(0.2)


threading.Thread(target=follow, daemon=True).start()
for line in sys.stdin:
    command = json.loads(line)
    with changed:
        health.update(command.get("health", {}))
        refusal[:] = [command["refuse"]] if command.get("refuse") else []
        changed.notify_all()
os._exit(0)
