//! The program between a real helper and simulated hardware: values up, desired values down, each once, whatever is killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::node::{Node, Seen, be_the_helper};
use support::rtu::Line;
use support::slave::Slave;
use support::{Mapper, device, model, wait};

/// Not a test by itself: the helper's process is this program, which starts here.
#[test]
fn the_helper() {
    be_the_helper();
}

/// Long enough to notice an unwanted write or read.
const A_WHILE: Duration = Duration::from_secs(3);

fn boiler() -> Value {
    model("boiler", "modbus", &[("temp", "FLOAT", "ReadOnly"), ("level", "INT", "ReadWrite")])
}

/// A boiler at this address, with this desired level.
fn boiler_at(name: &str, address: &str, level: &str) -> Value {
    device(
        name,
        "boiler",
        "modbus",
        &json!({"address": address, "slaveID": 3, "timeout": 300}),
        &json!([
            {"name": "temp", "collectCycle": 100, "reportToCloud": true, "visitors": {"protocolName": "modbus",
                "configData": {"register": "InputRegister", "offset": 7, "dataType": "int16", "scale": 0.1}}},
            {"name": "level", "collectCycle": 100, "reportToCloud": true, "desired": {"value": level}, "visitors": {
                "protocolName": "modbus", "configData": {"register": "HoldingRegister", "offset": 20}}},
        ]),
    )
}

struct Lab {
    folder: tempfile::TempDir,
    node: Node,
}

impl Lab {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::start(folder.path());
        Self { folder, node }
    }

    fn mapper(&self, arguments: &[&str]) -> Mapper {
        Mapper::start(self.folder.path(), arguments)
    }
}

#[test]
fn value_is_written_once_although_processes_are_killed() {
    let slave = Slave::start(&[(7, 215), (20, 1)]);
    let address = slave.address.to_string();
    let mut lab = Lab::start();
    lab.node.model(boiler());
    lab.node.device(boiler_at("b1", &address, ""));
    let mut mapper = lab.mapper(&["--protocol", "modbus"]);
    lab.node.wait_for("b1", "temp", "21.5");
    lab.node.wait_for("b1", "level", "1");
    lab.node.wait_for_state("b1", "online");
    slave.set(7, 0xffce);
    lab.node.wait_for("b1", "temp", "-5");
    assert_eq!(slave.writes(), []);

    lab.node.device(boiler_at("b1", &address, "5"));
    lab.node.wait_for("b1", "level", "5");
    wait("what is observed", || (lab.node.observed("b1", "level")? == "5").then_some(()));
    assert_eq!(slave.writes(), [(20, vec![5])]);

    // A person turns it by hand: the desired value was already written, and a restart does not write it again.
    slave.set(20, 2);
    lab.node.wait_for("b1", "level", "2");
    mapper.kill();
    slave.set(7, 100);
    mapper.again();
    lab.node.wait_for("b1", "temp", "10");
    lab.node.kill();
    lab.node.again();
    slave.set(7, 110);
    lab.node.wait_for("b1", "temp", "11");
    mapper.kill();
    lab.node.kill();
    lab.node.again();
    mapper.again();
    slave.set(7, 120);
    lab.node.wait_for("b1", "temp", "12");
    std::thread::sleep(A_WHILE);
    assert_eq!(slave.writes(), [(20, vec![5])], "no second write");

    // Another value is another wish, and so is the first one after it.
    lab.node.device(boiler_at("b1", &address, "6"));
    lab.node.wait_for("b1", "level", "6");
    lab.node.device(boiler_at("b1", &address, "5"));
    lab.node.wait_for("b1", "level", "5");
    assert_eq!(slave.writes(), [(20, vec![5]), (20, vec![6]), (20, vec![5])]);
}

#[test]
fn node_without_state_gets_everything() {
    let slave = Slave::start(&[(7, 215), (20, 1)]);
    let mut lab = Lab::start();
    lab.node.model(boiler());
    let mut body = boiler_at("b1", &slave.address.to_string(), "5");
    for property in body["spec"]["properties"].as_array_mut().unwrap() {
        property.as_object_mut().unwrap().insert("reportCycle".into(), json!(3_600_000));
    }
    lab.node.device(body);
    let _mapper = lab.mapper(&["--protocol", "modbus"]);
    lab.node.wait_for("b1", "level", "5");
    lab.node.wait_for("b1", "temp", "21.5");
    lab.node.kill();
    // As after the loss of its store.
    *lab.node.seen.lock().unwrap() = Seen::default();
    lab.node.again();
    lab.node.wait_for("b1", "level", "5");
    lab.node.wait_for("b1", "temp", "21.5");
    lab.node.wait_for_state("b1", "online");
    wait("what is observed", || (lab.node.observed("b1", "level")? == "5").then_some(()));
    assert_eq!(slave.writes(), [(20, vec![5])]);
}

#[test]
fn value_of_the_hardware_is_not_written_again() {
    let slave = Slave::start(&[(7, 0), (20, 5)]);
    let address = slave.address.to_string();
    let mut lab = Lab::start();
    lab.node.model(boiler());
    lab.node.device(boiler_at("b1", &address, "5"));
    let _mapper = lab.mapper(&["--protocol", "modbus"]);
    wait("what is observed", || (lab.node.observed("b1", "level")? == "5").then_some(()));
    std::thread::sleep(A_WHILE);
    assert_eq!(slave.writes(), []);
}

#[test]
fn hung_bus_blocks_no_other_and_is_reported_once() {
    let (good, bad) = (Slave::start(&[(7, 1), (20, 0)]), Slave::start(&[(7, 1), (20, 0)]));
    let mut lab = Lab::start();
    lab.node.model(boiler());
    lab.node.device(boiler_at("good", &good.address.to_string(), ""));
    lab.node.device(boiler_at("bad", &bad.address.to_string(), ""));
    let mapper = lab.mapper(&["--protocol", "modbus"]);
    lab.node.wait_for_state("good", "online");
    lab.node.wait_for_state("bad", "online");
    bad.hang(true);
    lab.node.wait_for_state("bad", "offline");
    let before = good.reads();
    std::thread::sleep(A_WHILE);
    // Two properties, ten times a second.
    let reads = good.reads() - before;
    assert!(reads > 30, "{reads} reads in {A_WHILE:?}");
    for value in [2, 3, 4] {
        good.set(7, value * 10);
        lab.node.wait_for("good", "temp", &value.to_string());
    }
    // Each property once, however often it was tried.
    let told = mapper.logged("did not answer");
    assert!((1..=2).contains(&told), "{told} lines");

    bad.hang(false);
    bad.set(7, 50);
    lab.node.wait_for_state("bad", "online");
    lab.node.wait_for("bad", "temp", "5");
    assert!(mapper.logged("well again") >= 1);
}

#[test]
fn impossible_device_causes_an_event_and_blocks_no_other() {
    let slave = Slave::start(&[(7, 10), (20, 0)]);
    let address = slave.address.to_string();
    let mut lab = Lab::start();
    lab.node.model(boiler());
    lab.node.device(boiler_at("good", &address, ""));
    let mut mapper = lab.mapper(&["--protocol", "modbus"]);
    lab.node.wait_for("good", "temp", "1");
    lab.node.device(boiler_at("bad", "nowhere", ""));
    let event = |part: &str| {
        lab.node.wait(part, |seen| {
            let mut events = seen.events.iter();
            events.find(|(reason, message)| reason == "MapperRefuses" && message.contains(part)).map(|_| ())
        });
    };
    event("property temp: configData address \"nowhere\" is not HOST:PORT");
    lab.node.device(boiler_at("good", &address, "much"));
    let event = |part: &str| {
        lab.node.wait(part, |seen| seen.events.iter().find(|(_, message)| message.contains(part)).map(|_| ()));
    };
    event("property level: desired: \"much\" is not a whole number");
    slave.set(7, 20);
    lab.node.wait_for("good", "temp", "2");
    lab.node.device(boiler_at("bad", &address, "7"));
    lab.node.wait_for("bad", "level", "7");
    assert_eq!(slave.writes(), [(20, vec![7])]);

    lab.node.gone("bad");
    lab.node.gone("good");
    wait("that both are left alone", || (mapper.logged("is left alone") == 2).then_some(()));
    let before = slave.reads();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(slave.reads(), before);
    assert!(mapper.process.as_mut().unwrap().is_alive());
}

#[test]
fn two_slaves_on_a_serial_line_are_driven() {
    let line = Line::start(&[((1, 0), 0x41ac), ((1, 1), 0), ((1, 2), 0), ((2, 0), 7), ((2, 1), 0), ((2, 2), 0)]);
    let mut lab = Lab::start();
    lab.node.model(model("plc", "modbus", &[("temp", "FLOAT", "ReadOnly"), ("fan", "BOOLEAN", "ReadWrite")]));
    let plc = |name: &str, slave: u8, kind: &str, fan: &str| {
        device(
            name,
            "plc",
            "modbus",
            &json!({"serialPort": line.path, "baudRate": 19_200, "slaveID": slave, "timeout": 500}),
            &json!([
                {"name": "temp", "collectCycle": 100, "reportToCloud": true,
                    "visitors": {"configData": {"register": "HoldingRegister", "offset": 0, "dataType": kind}}},
                {"name": "fan", "collectCycle": 100, "reportToCloud": true, "desired": {"value": fan},
                    "visitors": {"configData": {"register": "HoldingRegister", "offset": 2}}},
            ]),
        )
    };
    lab.node.device(plc("one", 1, "float32", ""));
    lab.node.device(plc("two", 2, "uint16", "true"));
    // No device answers at this address.
    lab.node.device(plc("three", 3, "uint16", ""));
    let mapper = lab.mapper(&["--protocol", "modbus"]);
    lab.node.wait_for("one", "temp", "21.5");
    lab.node.wait_for("two", "temp", "7");
    lab.node.wait_for("two", "fan", "true");
    assert_eq!(line.bank.lock().unwrap().writes, [(2, 2, 1)]);
    lab.node.wait_for_state("three", "offline");

    // An answer with a wrong checksum is ignored, and no part of it counts for another slave.
    line.bank.lock().unwrap().noisy = Some(2);
    lab.node.wait_for_state("two", "offline");
    line.bank.lock().unwrap().words.insert((1, 0), 0x41b4);
    lab.node.wait_for("one", "temp", "22.5");
    assert!(mapper.logged("an answer is damaged") <= 2, "whichever property it is");
    line.bank.lock().unwrap().noisy = None;
    line.bank.lock().unwrap().words.insert((2, 0), 8);
    lab.node.wait_for_state("two", "online");
    lab.node.wait_for("two", "temp", "8");
    assert_eq!(mapper.logged("three: temp"), 1);
}

#[test]
fn a_thermometer_is_read_and_its_absence_is_a_state() {
    const READING: &str = "72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n72 01 4b 46 7f ff 0e 10 57 t=23125\n";
    let bus = tempfile::tempdir().unwrap();
    let thermometer = bus.path().join("28-0316a2795dff");
    std::fs::create_dir(&thermometer).unwrap();
    std::fs::write(thermometer.join("w1_slave"), READING).unwrap();
    let mut lab = Lab::start();
    lab.node.model(model("ds18b20", "onewire", &[("temp", "FLOAT", "ReadOnly")]));
    lab.node.device(device(
        "cellar",
        "ds18b20",
        "onewire",
        &json!({"id": "28-0316a2795dff"}),
        &json!([{"name": "temp", "collectCycle": 100, "reportToCloud": true}]),
    ));
    // Both protocols of one program.
    let bus = bus.path().to_str().unwrap();
    let mapper = lab.mapper(&["--protocol", "onewire", "--protocol", "gpio", "--onewire", bus]);
    lab.node.wait_for("cellar", "temp", "23.125");
    lab.node.wait_for_state("cellar", "online");
    lab.node.wait("two mappers", |seen| (seen.mappers == 2).then_some(()));

    std::fs::write(thermometer.join("w1_slave"), READING.replace("YES", "NO")).unwrap();
    lab.node.wait_for_state("cellar", "offline");
    std::fs::write(thermometer.join("w1_slave"), READING.replace("23125", "23187")).unwrap();
    lab.node.wait_for("cellar", "temp", "23.187");
    lab.node.wait_for_state("cellar", "online");
    assert_eq!((mapper.logged("the check of the bytes fails"), mapper.logged("well again")), (1, 1));
}

#[test]
fn cycles_are_kept() {
    let slave = Slave::start(&[(7, 0), (20, 0)]);
    let mut lab = Lab::start();
    lab.node.model(boiler());
    let mut body = boiler_at("b1", &slave.address.to_string(), "");
    let properties = body["spec"]["properties"].as_array_mut().unwrap();
    properties.truncate(1);
    properties[0].as_object_mut().unwrap().insert("reportCycle".into(), json!(2_000));
    lab.node.device(body);
    let _mapper = lab.mapper(&["--protocol", "modbus"]);
    lab.node.wait_for("b1", "temp", "0");
    let before = slave.reads();
    // A value for each half second; every second one at most is reported.
    for value in 1..=12 {
        slave.set(7, value * 10);
        std::thread::sleep(Duration::from_millis(500));
    }
    lab.node.wait_for("b1", "temp", "12");
    let reads = slave.reads() - before;
    assert!((30..=90).contains(&reads), "{reads} reads in six seconds, each of 100 ms");
    let reported = lab.node.seen.lock().unwrap().reported[&("b1".to_owned(), "temp".to_owned())].len();
    assert!((3..=6).contains(&reported), "{reported} values, each of two seconds");
}
