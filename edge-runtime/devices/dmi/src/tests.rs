//! Bytes as KubeEdge's programs write them.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("a byte")).collect()
}

#[test]
fn a_report_is_read() {
    let text = bytes(
        "0a027431 124e 0a4c 0a0474656d70
         121e 120d0a04747970651205666c6f6174 120d0a0974696d657374616d701200
         1a24 0a0432312e35 120d0a04747970651205666c6f6174 120d0a0974696d657374616d701200
         1a0764656661756c74",
    );
    let metadata = [("type", "float"), ("timestamp", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let value = |value: &str| Some(TwinProperty { value: value.to_owned(), metadata: metadata.clone().into() });
    let twin = Twin { property_name: "temp".to_owned(), observed_desired: value(""), reported: value("21.5") };
    let expected = ReportDeviceStatusRequest {
        device_name: "t1".to_owned(),
        reported_device: Some(DeviceStatus { twins: vec![twin], ..DeviceStatus::default() }),
        device_namespace: "default".to_owned(),
    };
    assert_eq!(ReportDeviceStatusRequest::decode(text.as_slice()), Ok(expected));
}

#[test]
fn a_registration_is_read_and_written() {
    let text = bytes(
        "0801 1231 0a016d 12027631 1a0676312e302e30 22066d6f64627573
         2a142f6574632f6b756265656467652f6d2e736f636b 32026f6b",
    );
    let mapper = MapperInfo {
        name: "m".to_owned(),
        version: "v1".to_owned(),
        api_version: "v1.0.0".to_owned(),
        protocol: "modbus".to_owned(),
        address: b"/etc/kubeedge/m.sock".to_vec(),
        state: "ok".to_owned(),
    };
    let request = MapperRegisterRequest { with_data: true, mapper: Some(mapper) };
    assert_eq!(MapperRegisterRequest::decode(text.as_slice()).as_ref(), Ok(&request));
    assert_eq!(request.encode_to_vec(), text);
}

#[test]
fn values_are_wrapped() {
    let float = bytes(
        "0a2e747970652e676f6f676c65617069732e636f6d2f676f6f676c652e70726f746f6275662e466c6f617456616c7565
         1205 0d0000fb43",
    );
    assert_eq!(Any::float(502.0).encode_to_vec(), float);
    for (any, name, value) in [
        (Any::string("a".to_owned()), "StringValue", &[0x0a, 1, b'a'][..]),
        (Any::int64(300), "Int64Value", &[0x08, 0xac, 0x02]),
        (Any::boolean(true), "BoolValue", &[0x08, 1]),
        (Any::boolean(false), "BoolValue", &[]),
    ] {
        assert_eq!(any.type_url, format!("type.googleapis.com/google.protobuf.{name}"));
        assert_eq!(any.value, value);
    }
}

#[test]
fn unknown_fields_are_ignored_and_missing_ones_empty() {
    assert_eq!(MapperRegisterRequest::decode(&[][..]), Ok(MapperRegisterRequest::default()));
    // Field 15, a text.
    let later = [0x7a, 1, b'x'];
    assert_eq!(ReportDeviceStatesRequest::decode(&later[..]), Ok(ReportDeviceStatesRequest::default()));
    // A name that is not UTF-8, a text that is longer than the message, a group without an end.
    for wrong in [&[0x0a, 1, 0xff][..], &[0x0a, 9, b'x'], &[0x0b]] {
        assert!(ReportDeviceStatesRequest::decode(wrong).is_err());
    }
}

#[test]
fn equal_devices_have_equal_bytes() {
    let device = |keys: [&str; 3]| {
        let data = keys.map(|key| (key.to_owned(), Any::string(key.to_owned()))).into();
        let protocol = ProtocolConfig { protocol_name: "lab".to_owned(), config_data: Some(CustomizedValue { data }) };
        Device { spec: Some(DeviceSpec { protocol: Some(protocol), ..DeviceSpec::default() }), ..Device::default() }
    };
    assert_eq!(device(["a", "b", "c"]).encode_to_vec(), device(["c", "a", "b"]).encode_to_vec());
}

#[test]
fn parts_that_are_encoded_make_the_same_message() {
    let model = DeviceModel { name: "m".repeat(300), ..DeviceModel::default() };
    let devices = ["a", "b"].map(|name| Device { name: name.to_owned(), ..Device::default() });
    let (mut bytes, mut expected) = (Vec::new(), 0);
    for (number, part) in [(2, devices[0].encode_to_vec()), (1, model.encode_to_vec()), (2, devices[1].encode_to_vec())]
    {
        append(&mut bytes, number, &part);
        expected += appended(part.len());
        assert_eq!(bytes.len(), expected);
    }
    let whole = MapperRegisterResponse { model_list: vec![model], device_list: devices.into() };
    assert_eq!(MapperRegisterResponse::decode(bytes.as_slice()), Ok(whole));
    assert_eq!((count(&bytes, &[2]), count(&bytes, &[1]), count(&bytes, &[3])), (Some(2), Some(1), Some(0)));
}

#[test]
fn parts_are_counted_before_they_are_read() {
    // Two of the same field are one message in the end.
    let status = [0x12, 4, 0x0a, 0, 0x0a, 0, 0x12, 2, 0x0a, 0];
    assert_eq!(count(&status, &[2, 1]), Some(3));
    let read = ReportDeviceStatusRequest::decode(&status[..]).expect("a message");
    assert_eq!(read.reported_device.map(|device| device.twins.len()), Some(3));
    for wrong in [&[0x12, 9, 0][..], &[0x12], &[0x12, 1, 0x0a], &[0xff; 12], &[0x0b]] {
        assert_eq!(count(wrong, &[2, 1]), None, "{wrong:?}");
    }
}
