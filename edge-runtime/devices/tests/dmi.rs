//! The helper with a mapper in another process: the gRPC that programs in Python use, over sockets in a folder.

mod dmi_support;
mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dmi_support::{Mapper, Rows, device, gone, model, object, settings, wait_for};
use sampan_devices_control::{Dmi, FromHelper, Kind, Question, Settings, ToHelper};
use serde_json::{Value, json};
use support::{Helper, PATIENCE};

/// Time after which a mapper counts as not called.
const QUIET: Duration = Duration::from_millis(1_500);
/// Maximum delay of a call to a mapper without faults (D8).
const SOON: Duration = Duration::from_secs(5);

/// A helper with the model `lab` and its device `dev/t1`.
fn lab(folder: &std::path::Path) -> Helper {
    let mut helper = Helper::start(&settings(folder));
    tell(&mut helper, "ON", &Rows::default());
    helper
}

fn tell(helper: &mut Helper, led: &str, rows: &Rows) {
    object(helper, Kind::Device, "dev", "t1", device(led));
    object(helper, Kind::DeviceModel, "dev", "lab", model());
    rows.tell(helper);
    helper.told();
}

fn ask(helper: &Helper, question: Question) -> Value {
    let mut stream = support::connect(&helper.socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    for line in [ToHelper::Client {}, ToHelper::Ask { id: 1, question }] {
        writeln!(stream, "{}", serde_json::to_string(&line).expect("JSON")).expect("it listens");
    }
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut line).expect("an answer");
    match serde_json::from_str(&line).expect("a line of the contract") {
        FromHelper::Answer { answer, .. } => answer.expect("it can be answered"),
        other => panic!("{other:?}"),
    }
}

fn desired(device: &Value) -> &str {
    device["properties"]["led"]["desired"].as_str().expect("a LED")
}

#[test]
fn a_mapper_drives_devices_of_any_namespace() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut helper = lab(folder.path());
    let mut mapper = Mapper::start(folder.path(), "m", "lab");
    assert_eq!(
        mapper.registered["registered"],
        json!([{"name": "dev/t1", "protocol": {"baud": 9_600.0, "port": "/dev/ttyS0"}, "properties": {
            "temp": {"desired": "", "visitors": {"register": 7.0}, "type": null},
            "led": {"desired": "ON", "visitors": {"register": 1.0}, "type": "string"},
        }}])
    );
    let twins = json!([{"property": "temp", "observed": "", "reported": "21.5"}, {"property": "led", "observed": "ON", "reported": "OFF"}]);
    assert_eq!(mapper.reports("dev/t1", twins), "OK");
    let (batch, devices) = helper.report();
    assert_eq!((devices[0].namespace.as_str(), devices[0].twins.len()), ("dev", 2));
    let led = &devices[0].twins[0];
    let value = |value: &Option<edge_protocol::message::TwinValue>| value.as_ref().map(|held| held.value.clone());
    assert_eq!((value(&led.reported), value(&led.observed)), (Some("OFF".into()), Some("ON".into())));
    assert_eq!(value(&devices[0].twins[1].observed), None);
    helper.say(&ToHelper::Ack { batch, refused: Vec::new() });
    assert_eq!(mapper.does(&json!({"device": "dev/t1", "state": "online"})), "OK");
    let (batch, devices) = helper.report();
    assert_eq!(devices[0].state.as_ref().map(|state| state.state.as_str()), Some("online"));
    helper.say(&ToHelper::Ack { batch, refused: Vec::new() });

    let start = Instant::now();
    object(&mut helper, Kind::Device, "dev", "t1", device("DIM"));
    let (method, told) = mapper.called();
    assert_eq!((method.as_str(), desired(&told)), ("UpdateDevice", "DIM"));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let set = Question::Set {
        device: sampan_devices_control::Named { namespace: "dev".into(), name: "t1".into() },
        property: "led".into(),
        value: "BLINK".into(),
    };
    ask(&helper, set);
    assert_eq!(desired(&mapper.called().1), "BLINK");
    for name in ["t2", "t3"] {
        object(&mut helper, Kind::Device, "default", name, device(""));
    }
    object(&mut helper, Kind::DeviceModel, "default", "lab", model());
    let calls: Vec<String> = (0..3).map(|_| mapper.called().0).collect();
    assert_eq!(calls, ["CreateDeviceModel", "RegisterDevice", "RegisterDevice"]);
    gone(&mut helper, "default", "t2");
    assert_eq!(mapper.called(), ("RemoveDevice".to_owned(), json!({"name": "default/t2"})));
    mapper.is_left_alone(QUIET);

    let mappers = ask(&helper, Question::Mappers {});
    let [shown] = mappers.as_array().expect("a list").as_slice() else { panic!("{mappers}") };
    for (field, expected) in [("name", json!("m")), ("protocol", json!("lab")), ("socket", json!("m.sock"))] {
        assert_eq!(shown[field], expected);
    }
    assert_eq!((&shown["devices"], &shown["waiting"], &shown["answers"]), (&json!(2), &json!(0), &json!(true)));
    assert!(mapper.pid() > 0);
}

#[test]
fn faulty_call_is_answered_and_harms_no_other() {
    let folder = tempfile::tempdir().expect("temp dir");
    let helper = lab(folder.path());
    let mut mapper = Mapper::start(folder.path(), "m", "lab");
    for (method, bytes, expected) in [
        ("MapperRegister", "", "INVALID_ARGUMENT"),
        ("MapperRegister", "0801", "INVALID_ARGUMENT"),
        ("MapperRegister", "ffff", "INVALID_ARGUMENT"),
        ("ReportDeviceStatus", "", "INVALID_ARGUMENT"),
        // Of `dev/t1`: a twin without anything, one with a name alone.
        ("ReportDeviceStatus", "0a027431 1202 0a00 1a03646576", "INVALID_ARGUMENT"),
        ("ReportDeviceStatus", "0a027431 1208 0a06 0a0474656d70 1a03646576", "INVALID_ARGUMENT"),
        ("ReportDeviceStatus", "0a027431 1200 1a03646576", "OK"),
        ("ReportDeviceStatus", "0a027439 1200 1a03646576", "NOT_FOUND"),
        ("ReportDeviceStates", "", "INVALID_ARGUMENT"),
        ("ReportDeviceStates", "0a027431 1203646576 1a027570", "INVALID_ARGUMENT"),
        ("Nothing", "", "UNIMPLEMENTED"),
        ("", "", "UNIMPLEMENTED"),
    ] {
        let outcome = mapper.does(&json!({"method": method, "bytes": bytes}));
        let outcome = outcome.as_str().unwrap_or_default();
        assert!(outcome.starts_with(expected), "{method} {bytes}: {outcome}");
    }
    let long = "00".repeat(5 << 20);
    let outcome = mapper.does(&json!({"method": "ReportDeviceStatus", "bytes": long}));
    assert!(outcome.as_str().is_some_and(|outcome| outcome.starts_with("RESOURCE_EXHAUSTED")), "{outcome}");
    let twins = json!([{"property": "hum", "reported": "1"}, {"property": "temp", "reported": "1"}]);
    assert_eq!(mapper.reports("dev/t1", twins), "OK", "what fits is taken");
    let outcome = mapper.reports("dev/t1", json!([{"property": "temp", "reported": "hot"}]));
    assert!(outcome.as_str().is_some_and(|outcome| outcome.contains("\"hot\" is no finite number")), "{outcome}");

    // Half a frame, and nonsense, from one that hangs up or does not.
    let mut silent = Vec::new();
    for bytes in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 100], b"PRI"] {
        let mut stream = UnixStream::connect(folder.path().join("dmi.sock")).expect("it listens");
        stream.write_all(bytes).expect("it listens");
        silent.push(stream);
    }
    assert_eq!(mapper.reports("dev/t1", json!([{"property": "temp", "reported": "2"}])), "OK");
    // Another's socket, and no socket: one that registers there is not called there.
    for strange in ["../x", "a/b"] {
        let refused = Mapper::try_start(folder.path(), strange, "other", "0").map(drop);
        assert!(refused.as_ref().is_err_and(|why| why.starts_with("INVALID_ARGUMENT")), "{strange}: {refused:?}");
    }
    mapper.is_left_alone(Duration::from_millis(100));
    assert_eq!(ask(&helper, Question::Mappers {}).as_array().map(Vec::len), Some(1));
}

#[test]
fn newest_report_of_a_flood_arrives() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut helper = lab(folder.path());
    let mut mapper = Mapper::start(folder.path(), "m", "lab");
    let start = Instant::now();
    let outcomes = mapper.does(&json!({"flood": "dev/t1", "property": "led", "count": 1_000}));
    assert_eq!(outcomes, json!({"OK": 1_000}));
    let (mut reports, mut last) = (0, String::new());
    while last != "999" {
        let (batch, devices) = helper.report();
        helper.say(&ToHelper::Ack { batch, refused: Vec::new() });
        reports += 1;
        last = devices[0].twins[0].reported.as_ref().map(|held| held.value.clone()).unwrap_or_default();
    }
    let seconds = start.elapsed().as_secs();
    assert!(reports <= seconds + 2, "{reports} reports in {seconds} s, one a second at most");
}

#[test]
fn restarts_of_helper_and_daemon_go_unnoticed() {
    let folder = tempfile::tempdir().expect("temp dir");
    let (mut helper, mut rows) = (lab(folder.path()), Rows::default());
    let mut mapper = Mapper::start(folder.path(), "m", "lab");
    object(&mut helper, Kind::Device, "dev", "t2", device("ON"));
    assert_eq!(mapper.called().0, "RegisterDevice");
    rows.take_until(&helper, |rows| rows.contains_key("mapper/1/dev/t2"));

    // Another daemon.
    let mut daemon = Helper::call(&helper.socket, &settings(folder.path()));
    object(&mut daemon, Kind::Device, "dev", "t2", device("ON"));
    tell(&mut daemon, "ON", &rows);
    mapper.is_left_alone(QUIET);

    // Another helper.
    drop(daemon);
    helper.again(&settings(folder.path()));
    object(&mut helper, Kind::Device, "dev", "t2", device("ON"));
    tell(&mut helper, "ON", &rows);
    mapper.is_left_alone(QUIET);
    assert_eq!(mapper.reports("dev/t1", json!([{"property": "temp", "reported": "1"}])), "OK");

    // Changes during the restart are sent once.
    helper.again(&settings(folder.path()));
    tell(&mut helper, "DIM", &rows);
    let (first, second) = (mapper.called(), mapper.called());
    assert_eq!((first.0.as_str(), desired(&first.1)), ("UpdateDevice", "DIM"));
    assert_eq!(second, ("RemoveDevice".to_owned(), json!({"name": "dev/t2"})));
    rows.take_until(&helper, |rows| !rows.contains_key("mapper/1/dev/t2"));
    mapper.is_left_alone(QUIET);

    // One that dies and starts again is given everything again.
    drop(mapper);
    object(&mut helper, Kind::Device, "dev", "t2", device("ON"));
    let mapper = Mapper::start(folder.path(), "m", "lab");
    assert_eq!(mapper.registered["devices"], json!(2));
    assert_eq!(desired(&mapper.registered["registered"][0]), "DIM");
    mapper.is_left_alone(QUIET);
    rows.take_until(&helper, |rows| rows.contains_key("mapper/1/dev/t2"));
}

#[test]
fn socket_goes_with_the_helper() {
    let folder = tempfile::tempdir().expect("temp dir");
    let (mut helper, socket) = (lab(folder.path()), folder.path().join("dmi.sock"));
    wait_for(&socket);
    assert_eq!(helper.exit_after_end(), Some(0));
    assert!(!socket.exists(), "no server is behind it any more");
}

/// The store is written later; what a mapper has done by then is not to be done again (D9).
#[test]
fn a_helper_that_is_killed_at_once_repeats_no_call() {
    let folder = tempfile::tempdir().expect("temp dir");
    let (mut helper, mut rows) = (lab(folder.path()), Rows::default());
    object(&mut helper, Kind::Device, "dev", "t2", device("ON"));
    let mapper = Mapper::start(folder.path(), "m", "lab");
    assert_eq!(mapper.registered["devices"], json!(2));
    rows.take_until(&helper, |rows| rows.contains_key("mapper/1/dev/t2"));
    let settled = |helper: &Helper| {
        let start = Instant::now();
        while ask(helper, Question::Mappers {})[0]["waiting"] != json!(0) {
            assert!(start.elapsed() < PATIENCE);
        }
    };
    object(&mut helper, Kind::Device, "dev", "t1", device("DIM"));
    assert_eq!(mapper.called().0, "UpdateDevice");
    gone(&mut helper, "dev", "t2");
    assert_eq!(mapper.called().0, "RemoveDevice");
    settled(&helper);
    helper.again(&settings(folder.path()));
    tell(&mut helper, "DIM", &rows);
    mapper.is_left_alone(QUIET);
    // A new device is sent to the mapper that is known.
    object(&mut helper, Kind::Device, "dev", "t1", device("OFF"));
    assert_eq!(mapper.called().0, "UpdateDevice");
}

#[test]
fn a_mapper_may_come_before_its_devices_and_serve_late() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut helper = Helper::start(&settings(folder.path()));
    helper.told();
    let mapper = Mapper::try_start(folder.path(), "m", "lab", "3").expect("it is registered");
    assert_eq!(mapper.registered["devices"], json!(0));
    object(&mut helper, Kind::Device, "dev", "t1", device("ON"));
    object(&mut helper, Kind::DeviceModel, "dev", "lab", model());
    object(&mut helper, Kind::Device, "dev", "t1", device("OFF"));
    assert_eq!(mapper.next(), json!({"serving": true}));
    let start = Instant::now();
    assert_eq!(mapper.called().0, "CreateDeviceModel");
    let (method, told) = mapper.called();
    assert_eq!((method.as_str(), desired(&told)), ("RegisterDevice", "OFF"));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    mapper.is_left_alone(QUIET);
}

#[test]
fn a_link_in_place_of_a_socket_leads_nowhere() {
    let (folder, outside) = (tempfile::tempdir().expect("temp dir"), tempfile::tempdir().expect("temp dir"));
    let mut helper = lab(folder.path());
    let mapper = Mapper::try_start(folder.path(), "m", "lab", "3").expect("it is registered");
    let other = std::os::unix::net::UnixListener::bind(outside.path().join("other.sock")).expect("a socket");
    std::os::unix::fs::symlink(outside.path().join("other.sock"), folder.path().join("m.sock")).expect("a link");
    object(&mut helper, Kind::Device, "dev", "t1", device("OFF"));
    assert_eq!(mapper.next(), json!({"serving": true}), "it has put its own in the place");
    assert_eq!(mapper.called().0, "UpdateDevice");
    other.set_nonblocking(true).expect("a flag");
    assert_eq!(other.accept().map(drop).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
}

#[test]
fn the_newer_of_two_mappers_gets_the_devices() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut helper = lab(folder.path());
    let old = Mapper::start(folder.path(), "old", "lab");
    let new = Mapper::start(folder.path(), "new", "lab");
    assert_eq!((&old.registered["devices"], &new.registered["devices"]), (&json!(1), &json!(1)));
    assert_eq!(old.called(), ("RemoveDevice".to_owned(), json!({"name": "dev/t1"})));
    loop {
        if let FromHelper::Event { namespace, name, reason, .. } = helper.next() {
            assert_eq!((namespace.as_str(), name.as_str(), reason.as_str()), ("dev", "t1", "MapperReplaced"));
            break;
        }
    }
    object(&mut helper, Kind::Device, "dev", "t1", device("DIM"));
    assert_eq!(new.called().0, "UpdateDevice");
    old.is_left_alone(QUIET);
    assert_eq!(ask(&helper, Question::Mappers {}).as_array().map(Vec::len), Some(1));
}

#[test]
fn devices_with_many_properties_and_many_devices_arrive() {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut helper = Helper::start(&settings(folder.path()));
    let names: Vec<String> = (0..200).map(|n| format!("property-{n}")).collect();
    let of = |field: &str, more: &Value| -> Vec<Value> {
        let one = |name: &String| {
            let mut one = BTreeMap::from([("name".to_owned(), json!(name))]);
            one.insert(field.to_owned(), more.clone());
            json!(one)
        };
        names.iter().map(one).collect()
    };
    let config = json!({"protocolName": "lab", "configData": {"register": 1, "scale": 0.5, "unit": "C"}});
    object(
        &mut helper,
        Kind::DeviceModel,
        "dev",
        "wide",
        json!({"spec": {"properties": of("type", &json!("STRING"))}}),
    );
    let wide = json!({"spec": {"deviceModelRef": {"name": "wide"}, "protocol": {"protocolName": "lab"},
        "properties": of("visitors", &config)}});
    object(&mut helper, Kind::Device, "dev", "wide", wide);
    object(&mut helper, Kind::DeviceModel, "dev", "lab", model());
    let mut long = device("ON");
    if let Some(config) = long.pointer_mut("/spec/protocol/configData").and_then(Value::as_object_mut) {
        config.insert("long".into(), json!("x".repeat(5_000)));
    }
    for n in 0..3_000 {
        object(&mut helper, Kind::Device, "dev", &format!("t{n:04}"), long.clone());
    }
    helper.told();
    // Until all objects are passed in, callers get no answer.
    let start = Instant::now();
    while ask(
        &helper,
        Question::Get { device: Some(sampan_devices_control::Named { namespace: "dev".into(), name: "wide".into() }) },
    )
    .as_array()
    .is_none_or(Vec::is_empty)
    {
        assert!(start.elapsed() < PATIENCE);
    }
    // A helper without compiler optimization is slow with this many devices.
    let mut mapper = Mapper::try_start_within(folder.path(), "m", "lab", "0", "10").expect("it is registered");
    assert_eq!(mapper.next(), json!({"serving": true}));
    let given = mapper.registered["devices"].as_u64().expect("a number");
    let size = mapper.registered["bytes"].as_u64().expect("a number");
    assert!(given > 500 && given < 1_000 && size > 3 << 20 && size <= 7 << 19, "{given} devices in {size} bytes");
    for _ in given..3_001 {
        let method = mapper.called().0;
        // The model of the last one is not in the answer.
        if method == "CreateDeviceModel" {
            assert_eq!(mapper.called().0, "RegisterDevice");
        } else {
            assert_eq!(method, "RegisterDevice");
        }
    }
    let twins: Vec<Value> = names.iter().map(|name| json!({"property": name, "reported": name})).collect();
    assert_eq!(mapper.reports("dev/wide", json!(twins)), "OK");
    let (_, devices) = helper.report();
    assert_eq!(devices[0].twins.len(), 200);
    mapper.is_left_alone(QUIET);
}

#[test]
fn a_folder_that_cannot_be_had_stops_nothing_else() {
    let above = tempfile::tempdir().expect("temp dir");
    let folder = above.path().join("kubeedge");
    std::fs::write(&folder, "in the way").expect("a file");
    let mut helper =
        Helper::start(&Settings { dmi: Some(Dmi { folder: folder.clone(), ..Dmi::default() }), ..Settings::default() });
    helper.lab("ON");
    helper.told();
    let set = Question::Set {
        device: sampan_devices_control::Named { namespace: "default".into(), name: "t1".into() },
        property: "led".into(),
        value: "DIM".into(),
    };
    ask(&helper, set);
    assert_eq!(helper.report().1.len(), 1);
    assert_eq!(helper.counters()["mappers"], 0);
    std::fs::remove_file(&folder).expect("it was there");
    wait_for(&folder.join("dmi.sock"));
    let mut stream = UnixStream::connect(folder.join("dmi.sock")).expect("it listens");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("it listens");
    let mut heard = [0; 9];
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.read_exact(&mut heard).expect("it speaks HTTP/2");
    assert_eq!(heard[3], 4, "SETTINGS first");
    // If a container removes it, it is restored soon.
    std::fs::remove_file(folder.join("dmi.sock")).expect("it was there");
    wait_for(&folder.join("dmi.sock"));
}
