//! The mapper's own socket with another gRPC stack: repeated or malformed calls do not stop the mapper.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sampan_dmi::{
    Any, CreateDeviceModelRequest, CustomizedValue, Device, DeviceModel, DeviceModelSpec, DeviceProperty, DeviceSpec,
    GetDeviceRequest, GetDeviceResponse, Message, ModelProperty, ProtocolConfig, RegisterDeviceRequest,
    RegisterDeviceResponse, RemoveDeviceRequest, VisitorConfig, mapper,
};
use sampan_grpc::{Client, Code, Status};
use support::node::{Node, be_the_helper};
use support::{Mapper, PATIENCE};

/// Not a test by itself: the helper's process is this program, which starts here.
#[test]
fn the_helper() {
    be_the_helper();
}

fn text(key: &str, text: &str) -> (String, Any) {
    (key.to_owned(), Any::string(text.to_owned()))
}

fn model() -> DeviceModel {
    let property = ModelProperty { name: "temp".into(), r#type: "FLOAT".into(), ..ModelProperty::default() };
    let spec = DeviceModelSpec { properties: vec![property], ..DeviceModelSpec::default() };
    DeviceModel { name: "m".into(), namespace: "default".into(), spec: Some(spec) }
}

fn device(name: &str, id: &str) -> Device {
    let config = |data| Some(CustomizedValue { data });
    let visitors = VisitorConfig { config_data: config([text("id", id)].into()), ..VisitorConfig::default() };
    let property = DeviceProperty { name: "temp".into(), visitors: Some(visitors), ..DeviceProperty::default() };
    let protocol = ProtocolConfig { protocol_name: "onewire".into(), config_data: config([].into()) };
    let spec = DeviceSpec {
        device_model_reference: "m".into(),
        protocol: Some(protocol),
        properties: vec![property],
        methods: Vec::new(),
    };
    Device { name: name.into(), namespace: "default".into(), spec: Some(spec), status: None }
}

#[test]
fn any_call_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let _node = Node::start(folder.path());
    let mut program = Mapper::start(folder.path(), &["--protocol", "onewire", "--onewire", "/nowhere"]);
    let socket = folder.path().join("edge-mapper-onewire.sock");
    support::wait("registration", || (program.logged("is registered") == 1).then_some(()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let mut client = Client::new(socket.clone());
        let mut call = async |path: &str, message: Vec<u8>| client.call(path, &message, PATIENCE).await;
        let code = |answer: Result<Vec<u8>, Status>| answer.map_err(|status| status.code);

        let register = |device: Device| RegisterDeviceRequest { device: Some(device) }.encode_to_vec();
        let good = register(device("t1", "28-0316a2795dff"));
        assert_eq!(code(call(mapper::REGISTER_DEVICE, good.clone()).await), Err(Code::FailedPrecondition), "no model");
        let create = CreateDeviceModelRequest { model: Some(model()) }.encode_to_vec();
        for path in [mapper::CREATE_DEVICE_MODEL, mapper::CREATE_DEVICE_MODEL, mapper::UPDATE_DEVICE_MODEL] {
            assert!(call(path, create.clone()).await.is_ok());
        }
        for path in [mapper::REGISTER_DEVICE, mapper::REGISTER_DEVICE, mapper::UPDATE_DEVICE] {
            assert!(call(path, good.clone()).await.is_ok());
        }
        let answer = call(mapper::REGISTER_DEVICE, good.clone()).await.unwrap();
        let answer = RegisterDeviceResponse::decode(answer.as_slice()).unwrap();
        assert_eq!((answer.device_name.as_str(), answer.device_namespace.as_str()), ("t1", "default"));
        let get = |name: &str| GetDeviceRequest { device_name: name.into(), device_namespace: "default".into() };
        let held = call(mapper::GET_DEVICE, get("t1").encode_to_vec()).await.unwrap();
        let held = GetDeviceResponse::decode(held.as_slice()).unwrap().device;
        assert_eq!(held, Some(device("t1", "28-0316a2795dff")));
        assert_eq!(code(call(mapper::GET_DEVICE, get("t2").encode_to_vec()).await), Err(Code::NotFound));

        let wrong = call(mapper::UPDATE_DEVICE, register(device("t1", "../../etc"))).await.unwrap_err();
        assert_eq!(wrong.code, Code::InvalidArgument);
        assert!(wrong.message.starts_with("property temp: configData id "), "{}", wrong.message);
        for (path, message, expected) in [
            (mapper::REGISTER_DEVICE, Vec::new(), Code::InvalidArgument),
            (mapper::CREATE_DEVICE_MODEL, Vec::new(), Code::InvalidArgument),
            (mapper::REGISTER_DEVICE, register(Device::default()), Code::InvalidArgument),
            (mapper::REGISTER_DEVICE, register(device("a/b", "28-0316a2795dff")), Code::InvalidArgument),
            (mapper::REGISTER_DEVICE, vec![0x0a, 9], Code::Internal),
            (mapper::REGISTER_DEVICE, vec![0; 2 << 20], Code::OutOfRange),
            ("/v1beta1.DeviceMapperService/Other", Vec::new(), Code::Unimplemented),
        ] {
            assert_eq!(code(call(path, message).await), Err(expected), "{path}");
        }
        let remove = RemoveDeviceRequest { device_name: "t1".into(), device_namespace: "default".into() };
        for _ in 0..2 {
            assert!(call(mapper::REMOVE_DEVICE, remove.encode_to_vec()).await.is_ok());
        }
        assert_eq!(code(call(mapper::GET_DEVICE, get("t1").encode_to_vec()).await), Err(Code::NotFound));
        assert!(call(mapper::REMOVE_DEVICE_MODEL, Vec::new()).await.is_ok());

        // Clients that send nothing, or garbage, do not delay other clients.
        let mut strangers: Vec<UnixStream> = (0..10).map(|_| UnixStream::connect(&socket).unwrap()).collect();
        for stranger in strangers.iter_mut().take(5) {
            stranger.write_all(b"GET / HTTP/1.1\r\n\r\nPRI * HTTP/2.0\r\n").unwrap();
        }
        std::thread::sleep(Duration::from_millis(200));
        assert!(call(mapper::CREATE_DEVICE_MODEL, create.clone()).await.is_ok());
    });
    assert!(program.process.as_mut().unwrap().is_alive());
}
