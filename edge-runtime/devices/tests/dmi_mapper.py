"""A mapper with Google's gRPC (C core). It makes the calls of KubeEdge's mapper framework in the same order, and crashes where
the framework would.

dmi_mapper.py FOLDER NAME PROTOCOL [SECONDS [DEADLINE]]: registers (within DEADLINE, 1 second as in the framework), starts to serve
SECONDS later, and then executes the commands of its input, one JSON text per line. Prints events, one JSON text per line.
"""

import concurrent.futures
import json
import os
import sys
import threading
import time

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

# Fields of the messages, by number; "*" for a list, "<" for a map of texts to it.
MESSAGES = {
    "MapperRegisterRequest": "withData=1:bool mapper=2:MapperInfo",
    "MapperRegisterResponse": "modelList=1:*DeviceModel deviceList=2:*Device",
    "MapperInfo": "name=1 version=2 api_version=3 protocol=4 address=5:bytes state=6",
    "ReportDeviceStatusRequest": "deviceName=1 reportedDevice=2:DeviceStatus deviceNamespace=3",
    "ReportDeviceStatesRequest": "deviceName=1 deviceNamespace=2 state=3",
    "DeviceModel": "name=1 spec=2:DeviceModelSpec namespace=3",
    "DeviceModelSpec": "properties=1:*ModelProperty",
    "ModelProperty": "name=1 description=2 type=3 accessMode=4 minimum=5 maximum=6 unit=7",
    "Device": "name=1 spec=2:DeviceSpec status=3:DeviceStatus namespace=4",
    "DeviceSpec": "deviceModelReference=1 protocol=2:Config properties=3:*DeviceProperty",
    "DeviceProperty": "name=1 desired=2:TwinProperty visitors=3:Config reportCycle=4:int64 collectCycle=5:int64 reportToCloud=6:bool",
    "Config": "protocolName=1 configData=2:CustomizedValue",
    "CustomizedValue": "data=1:<.google.protobuf.Any",
    "DeviceStatus": "twins=1:*Twin reportToCloud=2:bool reportCycle=3:int64",
    "Twin": "propertyName=1 observedDesired=2:TwinProperty reported=3:TwinProperty",
    "TwinProperty": "value=1 metadata=2:<string",
    "DeviceRequest": "device=1:Device",
    "ModelRequest": "model=1:DeviceModel",
    "Removal": "deviceName=1 deviceNamespace=2",
    "Empty": "",
}
WRAPPED = ("StringValue", "FloatValue", "Int64Value", "Int32Value", "BoolValue")


def messages():
    field = descriptor_pb2.FieldDescriptorProto
    plain = {"string": field.TYPE_STRING, "bytes": field.TYPE_BYTES, "bool": field.TYPE_BOOL, "int64": field.TYPE_INT64}
    file = descriptor_pb2.FileDescriptorProto(name="lab.proto", package="lab", syntax="proto3")
    file.dependency.append("google/protobuf/any.proto")

    def add(message, name, number, kind):
        one = message.field.add(name=name, number=number, label=field.LABEL_OPTIONAL)
        if kind[0] in "*<":
            one.label = field.LABEL_REPEATED
        if kind[0] == "<":
            entry = message.nested_type.add(name=name.capitalize() + "Entry")
            entry.options.map_entry = True
            add(entry, "key", 1, "string")
            add(entry, "value", 2, kind[1:])
            one.type, one.type_name = field.TYPE_MESSAGE, ".lab." + message.name + "." + entry.name
            return
        kind = kind.lstrip("*")
        if kind in plain:
            one.type = plain[kind]
        else:
            one.type, one.type_name = field.TYPE_MESSAGE, kind if kind[0] == "." else ".lab." + kind

    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for one in fields.split():
            field_name, _, kind = one.partition("=")
            number, _, kind = kind.partition(":")
            add(message, field_name, int(number), kind or "string")
    pool = descriptor_pool.Default()
    any_pb2.Any()
    pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName("lab." + name)) for name in MESSAGES}


M = messages()
FOLDER, NAME, PROTOCOL = sys.argv[1:4]
MANAGER, SERVED = "/v1beta1.DeviceManagerService/", "/v1beta1.DeviceMapperService/"
told = threading.Lock()


def say(**what):
    with told:
        print(json.dumps(what), flush=True)


def die(why):
    say(died=why)
    os._exit(2)


def config(data):
    values = {}
    for key, value in data.items():
        for name in WRAPPED:
            wrapped = getattr(wrappers_pb2, name)()
            if value.Is(wrapped.DESCRIPTOR):
                value.Unpack(wrapped)
                values[key] = wrapped.value
    return values


class Devices:
    """The panel of the framework."""

    def __init__(self):
        self.models, self.devices = {}, {}

    def model(self, model):
        self.models[model.namespace + "/" + model.name] = model

    def device(self, device):
        if not device.HasField("spec") or not device.spec.HasField("protocol"):
            die("a device without spec or protocol")
        model = self.models.get(device.namespace + "/" + device.spec.deviceModelReference)
        if model is None:
            die("a device without its model")
        known = {one.name for one in model.spec.properties}
        for one in device.spec.properties:
            if not one.HasField("desired") or not one.visitors.HasField("configData"):
                die("a property without desired or configData")
            if one.name not in known:
                die("a property that is not in the model")
        self.devices[device.namespace + "/" + device.name] = device


def shown(device):
    properties = {
        one.name: {"desired": one.desired.value, "visitors": config(one.visitors.configData.data), "type": one.desired.metadata.get("type")}
        for one in device.spec.properties
    }
    protocol = config(device.spec.protocol.configData.data)
    return {"name": device.namespace + "/" + device.name, "protocol": protocol, "properties": properties}


panel = Devices()


class Handlers(grpc.GenericRpcHandler):
    def service(self, details):
        name = details.method[len(SERVED):] if details.method.startswith(SERVED) else ""
        handler = getattr(self, name, None)
        return handler and grpc.unary_unary_rpc_method_handler(lambda message, context: handler(message) or b"")

    def RegisterDevice(self, message):
        device = M["DeviceRequest"].FromString(message).device
        panel.device(device)
        say(call="RegisterDevice", device=shown(device))

    def UpdateDevice(self, message):
        device = M["DeviceRequest"].FromString(message).device
        if device.namespace + "/" + device.name not in panel.devices:
            die("an update of a device that it does not have")
        panel.device(device)
        say(call="UpdateDevice", device=shown(device))

    def RemoveDevice(self, message):
        removal = M["Removal"].FromString(message)
        name = removal.deviceNamespace + "/" + removal.deviceName
        if panel.devices.pop(name, None) is None:
            die("a second RemoveDevice of " + name)
        say(call="RemoveDevice", device={"name": name})

    def CreateDeviceModel(self, message):
        model = M["ModelRequest"].FromString(message).model
        panel.model(model)
        say(call="CreateDeviceModel", device={"name": model.namespace + "/" + model.name})

    UpdateDeviceModel = CreateDeviceModel

    def GetDevice(self, message):
        die("GetDevice")


def call(name, message, deadline=1):
    # A connection for each call, as in the framework.
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel("unix:" + FOLDER + "/dmi.sock", options=options) as channel:
        try:
            return channel.unary_unary(MANAGER + name)(message, timeout=deadline, wait_for_ready=True), "OK"
        except grpc.RpcError as error:
            return None, error.code().name + ": " + (error.details() or "")


def twin(one):
    def value(text):
        return M["TwinProperty"](value=text, metadata={"type": "string", "timestamp": ""})

    made = M["Twin"](propertyName=one["property"])
    if "observed" in one:
        made.observedDesired.CopyFrom(value(one["observed"]))
    if "reported" in one:
        made.reported.CopyFrom(value(one["reported"]))
    return made


def do(line):
    if "report" in line:
        namespace, name = line["report"].split("/")
        status = M["DeviceStatus"](twins=[twin(one) for one in line["twins"]])
        request = M["ReportDeviceStatusRequest"](deviceName=name, reportedDevice=status, deviceNamespace=namespace)
        return call("ReportDeviceStatus", request.SerializeToString())[1]
    if "state" in line:
        namespace, name = line["device"].split("/")
        request = M["ReportDeviceStatesRequest"](deviceName=name, deviceNamespace=namespace, state=line["state"])
        return call("ReportDeviceStates", request.SerializeToString())[1]
    if "flood" in line:
        # Repeats it as fast as possible.
        namespace, name = line["flood"].split("/")
        outcomes = {}
        for number in range(line["count"]):
            status = M["DeviceStatus"](twins=[twin({"property": line["property"], "reported": str(number)})])
            request = M["ReportDeviceStatusRequest"](deviceName=name, reportedDevice=status, deviceNamespace=namespace)
            outcome = call("ReportDeviceStatus", request.SerializeToString(), 10)[1]
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        return outcomes
    return call(line["method"], bytes.fromhex(line["bytes"]))[1]


def main():
    address = FOLDER + "/" + NAME + ".sock"
    info = M["MapperInfo"](name=NAME, version="v1", api_version="v1.0.0", protocol=PROTOCOL, address=address.encode(), state="ok")
    request = M["MapperRegisterRequest"](withData=True, mapper=info)
    start = time.monotonic()
    deadline = float(sys.argv[5]) if len(sys.argv) > 5 else 1
    answer, outcome = call("MapperRegister", request.SerializeToString(), deadline)
    if answer is None:
        return die(outcome)
    response = M["MapperRegisterResponse"].FromString(answer)
    for model in response.modelList:
        panel.model(model)
    for device in response.deviceList:
        panel.device(device)
    devices = response.deviceList[:10]
    say(
        registered=[shown(device) for device in devices],
        models=len(response.modelList),
        devices=len(response.deviceList),
        bytes=len(answer),
        milliseconds=round((time.monotonic() - start) * 1000),
    )
    time.sleep(float(sys.argv[4]) if len(sys.argv) > 4 else 0)
    if os.path.exists(address):
        os.unlink(address)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=(Handlers(),))
    server.add_insecure_port("unix:" + address)
    server.start()
    say(serving=True)
    for line in sys.stdin:
        say(outcome=do(json.loads(line)))


main()
