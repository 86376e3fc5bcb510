//! Mappers: their calls, with order and frequency, and their reports.

use std::collections::BTreeMap;

use sampan_devices_control::Dmi;
use sampan_dmi::{
    CreateDeviceModelRequest, Device, DeviceModel, DeviceStatus, MapperInfo, MapperRegisterRequest,
    MapperRegisterResponse, Message as _, RegisterDeviceRequest, RemoveDeviceRequest, ReportDeviceStatesRequest,
    ReportDeviceStatusRequest, Twin, TwinProperty, UpdateDeviceModelRequest, UpdateDeviceRequest, mapper as method,
};
use sampan_grpc::{Code, Status};

use sampan_json::SetField;

use super::*;

pub(super) const FOLDER: &str = "/etc/kubeedge";
const NEVER: &str = "no such call";

pub(super) fn with_dmi() -> Settings {
    Settings { dmi: Some(Dmi { folder: FOLDER.into(), ..Dmi::default() }), ..settings() }
}

/// A device of the protocol `lab` with this desired value of its LED.
pub(super) fn lab_device(led: &str) -> Value {
    json!({"spec": {"deviceModelRef": {"name": "lab"}, "protocol": {"protocolName": "lab", "configData": {"port": 1}},
        "properties": [{"name": "temp"}, {"name": "led", "desired": {"value": led}}]}})
}

pub(super) fn registration(name: &str, protocol: &str, with_data: bool) -> Request {
    Request::Register(MapperRegisterRequest {
        with_data,
        mapper: Some(MapperInfo {
            name: name.into(),
            version: "v1".into(),
            api_version: "v1.0.0".into(),
            protocol: protocol.into(),
            address: format!("{FOLDER}/{name}.sock").into_bytes(),
            state: "ok".into(),
        }),
    })
}

/// A mapper as KubeEdge's framework makes it: what it would die of fails the test.
#[derive(Clone, Debug, Default)]
pub(super) struct Mapper {
    pub(super) models: BTreeMap<String, DeviceModel>,
    /// Each with its model as it was then.
    pub(super) devices: BTreeMap<String, (Device, DeviceModel)>,
    /// Method and device or model of each call.
    pub(super) calls: Vec<(String, String)>,
}

impl Mapper {
    pub(super) fn registered(&mut self, answer: &[u8]) {
        let MapperRegisterResponse { model_list, device_list } =
            sampan_dmi::Message::decode(answer).expect("a response");
        assert!(answer.len() < 4 << 20);
        for model in model_list {
            let held = self.models.insert(format!("{}/{}", model.namespace, model.name), model);
            assert_eq!(held, None, "once each");
        }
        device_list.into_iter().for_each(|device| self.take(device, false));
    }

    fn take(&mut self, device: Device, known: bool) {
        let spec = device.spec.as_ref().expect("a spec");
        let model =
            self.models.get(&format!("{}/{}", device.namespace, spec.device_model_reference)).expect("the model first");
        let known_properties = &model.spec.as_ref().expect("a spec").properties;
        assert!(spec.protocol.as_ref().is_some_and(|protocol| protocol.config_data.is_some()));
        assert!(device.status.is_some());
        for property in &spec.properties {
            assert!(property.desired.is_some());
            assert!(property.visitors.as_ref().is_some_and(|visitors| visitors.config_data.is_some()));
            assert!(known_properties.iter().any(|known| known.name == property.name), "{property:?}");
        }
        let (model, name) = (model.clone(), format!("{}/{}", device.namespace, device.name));
        let held = self.devices.insert(name, (device.clone(), model.clone()));
        assert_eq!(held.is_some(), known);
        assert_ne!(held, Some((device, model)), "a call without a change");
    }

    /// Does what it is called for.
    pub(super) fn call(&mut self, path: &str, message: &[u8]) {
        let short = path.rsplit('/').next().unwrap_or_default().to_owned();
        let name = match path {
            method::CREATE_DEVICE_MODEL | method::UPDATE_DEVICE_MODEL => {
                let model = match path {
                    method::CREATE_DEVICE_MODEL => CreateDeviceModelRequest::decode(message).expect("a request").model,
                    _ => UpdateDeviceModelRequest::decode(message).expect("a request").model,
                };
                let model = model.expect("a model");
                let name = format!("{}/{}", model.namespace, model.name);
                let held = self.models.insert(name.clone(), model);
                assert_eq!(held.is_some(), path == method::UPDATE_DEVICE_MODEL);
                name
            }
            method::REGISTER_DEVICE => {
                let device = RegisterDeviceRequest::decode(message).expect("a request").device.expect("a device");
                let name = format!("{}/{}", device.namespace, device.name);
                self.take(device, false);
                name
            }
            method::UPDATE_DEVICE => {
                let device = UpdateDeviceRequest::decode(message).expect("a request").device.expect("a device");
                let name = format!("{}/{}", device.namespace, device.name);
                self.take(device, true);
                name
            }
            method::REMOVE_DEVICE => {
                let RemoveDeviceRequest { device_name, device_namespace } =
                    sampan_dmi::Message::decode(message).expect("a request");
                let name = format!("{device_namespace}/{device_name}");
                assert!(self.devices.remove(&name).is_some(), "a second RemoveDevice of {name}");
                name
            }
            _ => panic!("{NEVER}: {path}"),
        };
        self.calls.push((short, name));
    }

    /// The desired value of a device's LED, as the mapper holds it.
    pub(super) fn led(&self, device: &str) -> Option<&str> {
        let spec = self.devices.get(device)?.0.spec.as_ref()?;
        let led = spec.properties.iter().find(|property| property.name == "led")?;
        led.desired.as_ref().map(|desired| desired.value.as_str())
    }

    fn called(&mut self) -> Vec<String> {
        std::mem::take(&mut self.calls).into_iter().map(|(method, name)| format!("{method} {name}")).collect()
    }
}

/// A call that is under way.
#[derive(Clone, Debug)]
pub(super) struct Calling {
    pub(super) mapper: u64,
    pub(super) socket: String,
    pub(super) call: u64,
    pub(super) path: &'static str,
    pub(super) message: Vec<u8>,
}

impl World {
    pub(super) fn dmi() -> Self {
        Self::started(&with_dmi(), &BTreeMap::new())
    }

    /// A world with one device and the rows of an earlier process.
    pub(super) fn started(settings: &Settings, rows: &BTreeMap<String, String>) -> Self {
        let mut world = Self::new(settings);
        rows.iter().for_each(|(uid, record)| world.twins.kept(uid.clone(), record.clone()));
        world.model();
        world.device("t1", UID, lab_device("ON"));
        world.twins.told(world.now);
        world.link(true);
        world.tick();
        world
    }

    /// The answer to a request.
    pub(super) fn ask(&mut self, request: Request) -> Result<Vec<u8>, Code> {
        self.twins.asked(self.now, 7, request, String::new());
        self.tick();
        let mut answers = Vec::new();
        self.said.retain(|said| match said {
            Output::Answer { call: 7, answer } => {
                answers.push(answer.clone());
                false
            }
            _ => true,
        });
        assert_eq!(answers.len(), 1, "one answer");
        answers.remove(0).map_err(|status| status.code)
    }

    pub(super) fn register(&mut self, name: &str) -> Mapper {
        let mut mapper = Mapper::default();
        let answer = self.ask(registration(name, "lab", true)).expect("it is registered");
        mapper.registered(&answer);
        mapper
    }

    /// Calls so far.
    pub(super) fn calls(&mut self) -> Vec<Calling> {
        let mut calls = Vec::new();
        self.said.retain(|said| {
            let Output::Call { mapper, socket, call, path, message } = said else { return true };
            let (mapper, call, path) = (*mapper, *call, *path);
            calls.push(Calling { mapper, socket: socket.clone(), call, path, message: message.clone() });
            false
        });
        calls
    }

    fn fails(&mut self, call: u64, code: Code) {
        self.twins.answered(self.now, call, Err(Status::new(code, "why")));
        self.tick();
    }

    /// Answers all calls of the mapper until none is left.
    pub(super) fn serve(&mut self, mapper: &mut Mapper) {
        self.tick();
        loop {
            let calls = self.calls();
            if calls.is_empty() {
                return;
            }
            assert_eq!(calls.len(), 1, "one after the other");
            for calling in calls {
                mapper.call(calling.path, &calling.message);
                self.twins.answered(self.now, calling.call, Ok(()));
                self.tick();
            }
        }
    }

    fn events(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        self.said.retain(|said| {
            let Output::Tell(FromHelper::Event { name, reason, .. }) = said else { return true };
            events.push(format!("{reason} {name}"));
            false
        });
        events
    }

    /// All rows as the daemon has them.
    pub(super) fn rows(&mut self, rows: &mut BTreeMap<String, String>) {
        for Row { uid, record } in self.kept() {
            match record.is_empty() {
                true => drop(rows.remove(&uid)),
                false => drop(rows.insert(uid, record)),
            }
        }
    }

    fn twins_say(&mut self, name: &str, twins: Vec<Twin>) -> Result<Vec<u8>, Code> {
        self.ask(Request::Twins(ReportDeviceStatusRequest {
            device_name: name.into(),
            reported_device: Some(DeviceStatus { twins, ..DeviceStatus::default() }),
            device_namespace: "default".into(),
        }))
    }
}

fn twin(property: &str, observed: Option<&str>, reported: Option<&str>) -> Twin {
    let value = |value: &str| TwinProperty { value: value.into(), ..TwinProperty::default() };
    Twin { property_name: property.into(), observed_desired: observed.map(value), reported: reported.map(value) }
}

#[test]
fn a_mapper_is_given_its_devices_at_once_and_news_once_each() {
    let mut world = World::dmi();
    let mut mapper = world.register("m");
    assert_eq!((mapper.led("default/t1"), mapper.models.len()), (Some("ON"), 1));
    world.serve(&mut mapper);
    assert!(mapper.called().is_empty());

    world.device("t1", UID, lab_device("OFF"));
    world.device("t2", "uid-2", lab_device(""));
    world.serve(&mut mapper);
    assert_eq!(mapper.called(), ["UpdateDevice default/t1", "RegisterDevice default/t2"]);
    assert_eq!(mapper.led("default/t1"), Some("OFF"));

    // What changes nothing for a driver.
    world.device("t1", UID, lab_device("OFF"));
    world.report("temp", "1");
    world.twins.daemon_came(world.now);
    world.model();
    world.device("t1", UID, lab_device("OFF"));
    world.device("t2", "uid-2", lab_device(""));
    world.twins.told(world.now);
    world.link(true);
    world.serve(&mut mapper);
    assert!(mapper.called().is_empty());

    // A user on the node sets another value, then an MQTT client does, then the value is removed.
    world.twins.set(world.now, &id("t1"), "led", "DIM").expect("it fits");
    world.serve(&mut mapper);
    assert_eq!((mapper.called().len(), mapper.led("default/t1")), (1, Some("DIM")));
    world.t1("twin/update", r#"{"twin":{"led":{"expected":{"value":"BLINK"}}}}"#);
    world.serve(&mut mapper);
    assert_eq!((mapper.called().len(), mapper.led("default/t1")), (1, Some("BLINK")));
    world.twins.set(world.now, &id("t1"), "led", "").expect("it fits");
    world.serve(&mut mapper);
    assert_eq!((mapper.called().len(), mapper.led("default/t1")), (1, Some("OFF")));

    world.twins.gone(world.now, Kind::Device, &id("t1"), UID);
    world.serve(&mut mapper);
    assert_eq!(mapper.called(), ["RemoveDevice default/t1"]);
    // Changes to another protocol, and back again.
    let mut other = lab_device("");
    other.set_at(&["spec", "protocol", "protocolName"], "modbus".into());
    world.device("t2", "uid-2", other);
    world.serve(&mut mapper);
    world.device("t2", "uid-2", lab_device(""));
    world.serve(&mut mapper);
    assert_eq!(mapper.called(), ["RemoveDevice default/t2", "RegisterDevice default/t2"]);
    // Another device of the name is another device.
    world.device("t2", "uid-3", lab_device(""));
    world.tick();
    let calls = world.calls();
    assert_eq!(calls.iter().map(|calling| calling.path).collect::<Vec<_>>(), [method::UPDATE_DEVICE]);
}

#[test]
fn models_come_first_and_their_changes_count() {
    let mut world = World::new(&with_dmi());
    world.twins.told(world.now);
    let mut mapper = world.register("m");
    world.device("t1", UID, lab_device("ON"));
    world.serve(&mut mapper);
    assert!(mapper.called().is_empty(), "without its model it cannot be driven");
    world.model();
    world.serve(&mut mapper);
    assert_eq!(mapper.called(), ["CreateDeviceModel default/lab", "RegisterDevice default/t1"]);

    // Replacing a model does not remove its devices.
    world.twins.gone(world.now, Kind::DeviceModel, &id("lab"), "model");
    world.serve(&mut mapper);
    world.model();
    world.serve(&mut mapper);
    assert!(mapper.called().is_empty());

    let mut changed = model();
    changed["spec"]["properties"][0]["description"] = "only words".into();
    world.twins.object(world.now, Kind::DeviceModel, id("lab"), "model".into(), &changed);
    world.serve(&mut mapper);
    assert!(mapper.called().is_empty());
    changed["spec"]["properties"][0]["maximum"] = "130".into();
    world.twins.object(world.now, Kind::DeviceModel, id("lab"), "model".into(), &changed);
    world.serve(&mut mapper);
    assert_eq!(mapper.called(), ["UpdateDeviceModel default/lab", "UpdateDevice default/t1"]);
}

#[test]
fn a_mapper_that_does_not_serve_yet_is_tried_again() {
    let mut world = World::dmi();
    let mut mapper = world.register("m");
    world.device("t1", UID, lab_device("OFF"));
    world.tick();
    let start = world.now.mono;
    let mut tries = Vec::new();
    for _ in 0..8 {
        let calls = world.calls();
        assert_eq!(calls.len(), 1);
        tries.push(world.now.mono - start);
        world.fails(calls[0].call, Code::Unavailable);
        let at = world.twins.mappers.wake().expect("another try");
        world.wait(at - world.now.mono);
        world.tick();
    }
    assert_eq!(tries, [0, 100, 300, 700, 1_500, 2_500, 3_500, 4_500], "each second at least");
    // Meanwhile the desired value changes: only the new one is sent.
    world.device("t1", UID, lab_device("DIM"));
    let calls = world.calls();
    world.fails(calls[0].call, Code::Unavailable);
    world.wait(1_000);
    world.serve(&mut mapper);
    assert_eq!((mapper.called().len(), mapper.led("default/t1")), (1, Some("DIM")));
    // A minute later seldom.
    world.wait(60_000);
    world.device("t1", UID, lab_device("ON"));
    world.tick();
    let mut last = 0;
    for _ in 0..12 {
        let calls = world.calls();
        world.fails(calls[0].call, Code::Unavailable);
        let at = world.twins.mappers.wake().expect("another try");
        last = at - world.now.mono;
        world.wait(last);
        world.tick();
    }
    assert_eq!(last, 30_000);
    // It reports: then it may serve, too.
    let calls = world.calls();
    world.fails(calls[0].call, Code::Unavailable);
    for millis in [300, 400] {
        world.wait(millis);
        assert_eq!(world.twins_say("t1", vec![twin("led", None, Some("x"))]), Ok(Vec::new()));
        assert!(world.calls().is_empty());
    }
    world.wait(300);
    world.serve(&mut mapper);
    assert_eq!(mapper.led("default/t1"), Some("ON"));
}

#[test]
fn refused_device_does_not_delay_others() {
    let mut world = World::dmi();
    let mut mapper = world.register("m");
    world.device("t1", UID, lab_device("OFF"));
    world.device("t2", "uid-2", lab_device("ON"));
    world.tick();
    let calls = world.calls();
    world.fails(calls[0].call, Code::Unknown);
    assert_eq!(world.events(), ["MapperRefuses t1"]);
    world.serve(&mut mapper);
    assert_eq!(mapper.called(), ["RegisterDevice default/t2"]);
    for _ in 0..3 {
        world.wait(30_000);
        world.tick();
        let calls = world.calls();
        assert_eq!(calls.len(), 1);
        world.fails(calls[0].call, Code::DeadlineExceeded);
    }
    assert!(world.events().is_empty(), "said once");
    world.wait(30_000);
    world.serve(&mut mapper);
    assert_eq!(mapper.called(), ["UpdateDevice default/t1"]);
    assert_eq!(mapper.led("default/t1"), Some("OFF"));
}

#[test]
fn device_is_removed_once_whatever_the_result() {
    for code in [Code::DeadlineExceeded, Code::Internal, Code::Unknown] {
        let mut world = World::dmi();
        world.register("m");
        world.twins.gone(world.now, Kind::Device, &id("t1"), UID);
        world.tick();
        let calls = world.calls();
        assert_eq!(calls[0].path, method::REMOVE_DEVICE);
        // A call that never arrived does not count.
        world.fails(calls[0].call, Code::Unavailable);
        world.wait(100);
        world.tick();
        let calls = world.calls();
        assert_eq!(calls[0].path, method::REMOVE_DEVICE);
        world.fails(calls[0].call, code);
        for _ in 0..10 {
            world.wait(60_000);
            world.tick();
            assert!(world.calls().is_empty());
        }
        // It returns, and is sent as a device that the mapper does not have.
        world.device("t1", UID, lab_device("ON"));
        world.tick();
        assert_eq!(world.calls()[0].path, method::REGISTER_DEVICE);
    }
}

#[test]
fn d09_another_helper_goes_on_without_a_call() {
    let mut world = World::dmi();
    let mut rows = BTreeMap::new();
    let mut mapper = world.register("m");
    world.device("t2", "uid-2", lab_device("ON"));
    world.device("t3", "uid-3", lab_device("ON"));
    world.serve(&mut mapper);
    world.wait(1_000);
    world.tick();
    world.rows(&mut rows);
    mapper.called();

    let again = |rows: &BTreeMap<String, String>, devices: &[(&str, &str, &str)]| {
        let mut world = World::new(&with_dmi());
        world.model();
        for (name, uid, led) in devices {
            world.device(name, uid, lab_device(led));
        }
        for (uid, record) in rows {
            world.twins.kept(uid.clone(), record.clone());
        }
        world.twins.told(world.now);
        world.link(true);
        world.tick();
        world
    };
    let all = [("t1", UID, "ON"), ("t2", "uid-2", "ON"), ("t3", "uid-3", "ON")];
    let mut world = again(&rows, &all);
    world.serve(&mut mapper);
    assert!(mapper.called().is_empty());
    world.wait(700_000);
    world.tick();
    let before = rows.clone();
    world.rows(&mut rows);
    assert_eq!(rows, before, "nothing is forgotten");

    // Changes during the restart are sent.
    let mut world = again(&rows, &[("t1", UID, "OFF"), ("t3", "uid-3", "ON")]);
    world.serve(&mut mapper);
    assert_eq!(mapper.called(), ["UpdateDevice default/t1", "RemoveDevice default/t2"]);
    world.wait(1_000);
    world.tick();
    world.rows(&mut rows);

    // If a mapper dies while it removes a device, the call is repeated: it may not have been done.
    let mut world = again(&rows, &[("t1", UID, "OFF")]);
    assert_eq!(world.calls()[0].path, method::REMOVE_DEVICE);
    world.rows(&mut rows);
    let mut world = again(&rows, &[("t1", UID, "OFF")]);
    assert!(world.calls().is_empty());
    // A daemon that did not write the rows gets them again.
    world.rows(&mut rows);
    let held = rows.clone();
    world.device("t1", UID, lab_device("DIM"));
    world.serve(&mut mapper);
    mapper.called();
    world.wait(1_000);
    world.tick();
    world.said.clear();
    world.twins.daemon_came(world.now);
    world.model();
    world.device("t1", UID, lab_device("DIM"));
    for (uid, record) in &held {
        world.twins.kept(uid.clone(), record.clone());
    }
    world.twins.told(world.now);
    world.serve(&mut mapper);
    assert!(mapper.called().is_empty());
    world.wait(1_000);
    world.tick();
    world.rows(&mut rows);
    assert_ne!(rows, held);
    let mut world = again(&rows, &[("t1", UID, "DIM")]);
    world.serve(&mut mapper);
    assert!(mapper.called().is_empty());
}

/// It has moved hardware by then: a helper that is killed now must not have it do so again.
#[test]
fn d09_accepted_call_is_noted_before_the_next_step() {
    let mut world = World::dmi();
    let mut mapper = world.register("m");
    for led in ["OFF", "DIM"] {
        world.device("t1", UID, lab_device(led));
        world.twins.unnoted();
        world.serve(&mut mapper);
        assert_eq!(mapper.called(), ["UpdateDevice default/t1"]);
        let noted: Vec<String> = world.twins.unnoted().into_iter().map(|row| row.uid).collect();
        assert_eq!(noted, ["mapper/1/default/t1"], "{led}");
    }
    // The store gets it later, and not each time, to spare the medium.
    world.said.clear();
    for n in 0..1_000 {
        world.device("t1", UID, lab_device(&format!("{n}")));
        world.serve(&mut mapper);
    }
    assert!(world.kept().len() < 50);
}

#[test]
fn restarted_mapper_gets_everything_with_few_writes() {
    let mut world = World::dmi();
    world.register("m");
    let mut rows = BTreeMap::new();
    world.rows(&mut rows);
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["mapper/1", "mapper/1/default/t1"]);
    // A call to the one before is not answered by the one after.
    world.device("t1", UID, lab_device("OFF"));
    world.tick();
    let calls = world.calls();
    world.wait(5);
    let mut mapper = world.register("m");
    assert_eq!(mapper.led("default/t1"), Some("OFF"));
    assert!(world.said.iter().any(|said| matches!(said, Output::Hangup { mapper: 1 })));
    world.fails(calls[0].call, Code::Unknown);
    world.serve(&mut mapper);
    assert!(mapper.called().is_empty() && world.events().is_empty());
    world.rows(&mut rows);
    world.wait(5);
    world.register("m");
    let written: Vec<String> = world.kept().into_iter().map(|row| row.uid).collect();
    assert_eq!(written, Vec::<String>::new());
}

#[test]
fn the_newer_of_two_mappers_gets_the_devices() {
    let mut world = World::dmi();
    let mut old = world.register("old");
    let mut new = world.register("new");
    assert_eq!(new.devices.len(), 1);
    assert_eq!(world.events(), ["MapperReplaced t1"]);
    let listed = world.twins.mappers().expect("DMI is on");
    assert_eq!((&listed[0]["replaced"], &listed[1]["name"]), (&true.into(), &"new".into()));
    world.device("t1", UID, lab_device("OFF"));
    world.tick();
    let mut sockets = Vec::new();
    for calling in world.calls() {
        let mapper = if calling.socket == "old.sock" { &mut old } else { &mut new };
        mapper.call(calling.path, &calling.message);
        sockets.push(calling.socket);
        world.twins.answered(world.now, calling.call, Ok(()));
    }
    world.tick();
    sockets.sort_unstable();
    assert_eq!(sockets, ["new.sock", "old.sock"]);
    assert_eq!(
        (old.called(), new.called()),
        (vec!["RemoveDevice default/t1".into()], vec!["UpdateDevice default/t1".into()])
    );
    assert!(world.calls().is_empty());
    let mut rows = BTreeMap::new();
    world.wait(1_000);
    world.tick();
    world.rows(&mut rows);
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["mapper/2", "mapper/2/default/t1"]);

    // A mapper that is dead by then is given up.
    world.register("third");
    for _ in 0..30 {
        world.tick();
        for calling in world.calls() {
            assert_eq!(calling.socket, "new.sock");
            world.fails(calling.call, Code::Unavailable);
        }
        world.wait(30_000);
    }
    world.tick();
    let left = world.twins.mappers().expect("DMI is on");
    assert_eq!((left.as_array().map(Vec::len), &left[0]["name"]), (Some(1), &"third".into()));
    assert!(world.calls().is_empty() && world.twins.mappers.wake().is_none());
}

#[test]
fn a_registration_before_the_daemon_is_answered_after_it() {
    let mut world = World::new(&with_dmi());
    world.twins.asked(world.now, 3, registration("m", "lab", true), String::new());
    world.tick();
    assert!(!world.said.iter().any(|said| matches!(said, Output::Answer { .. })));
    assert_eq!(world.twins_say("t1", Vec::new()), Err(Code::Unavailable));
    world.model();
    world.device("t1", UID, lab_device("ON"));
    world.twins.told(world.now);
    world.tick();
    let answer = world.said.iter().find_map(|said| match said {
        Output::Answer { call: 3, answer } => answer.clone().ok(),
        _ => None,
    });
    let mut mapper = Mapper::default();
    mapper.registered(&answer.expect("an answer"));
    assert_eq!(mapper.devices.len(), 1);
}

#[test]
fn devices_beyond_one_answer_follow() {
    let mut world = World::new(&with_dmi());
    world.model();
    let mut long = lab_device("ON");
    long.set_at(&["spec", "protocol", "configData", "long"], "x".repeat(5_000).into());
    let mut other = lab_device("ON");
    other.set_at(&["spec", "protocol", "protocolName"], "other".into());
    for n in 0..1_500 {
        let body = if n == 1_400 { &other } else { &long };
        world.device(&format!("t{n:04}"), &format!("uid-{n}"), body.clone());
    }
    world.twins.told(world.now);
    let mut mapper = world.register("m");
    let first = mapper.devices.len();
    assert!((600..750).contains(&first), "{first} of 5 KB");
    world.serve(&mut mapper);
    assert_eq!((mapper.devices.len(), mapper.called().len()), (1_499, 1_499 - first));

    let mut odd = lab_device("ON");
    odd.set_at(&["spec", "protocol", "configData", "deep"], json!({"a": 1}));
    for n in 0..1_500 {
        let body = if n == 1_499 { odd.clone() } else { lab_device("ON") };
        world.device(&format!("t{n:04}"), &format!("uid-{n}"), body);
    }
    let mut mapper = world.register("m");
    assert_eq!(mapper.devices.len(), 1_000, "in time");
    world.serve(&mut mapper);
    assert_eq!((mapper.devices.len(), mapper.called().len()), (1_500, 500));
    assert_eq!(world.events(), ["DeviceNotFitForMapper t1499"]);

    let mut slim = Mapper::default();
    slim.registered(&world.ask(registration("slim", "lab", false)).expect("it is registered"));
    assert!(slim.devices.is_empty());
}

#[test]
fn malformed_registrations_are_refused() {
    let mut world = World::dmi();
    let register = |change: &dyn Fn(&mut MapperInfo)| {
        let Request::Register(mut request) = registration("m", "lab", true) else { panic!("{NEVER}") };
        request.mapper.iter_mut().for_each(change);
        Request::Register(request)
    };
    for request in [
        Request::Register(MapperRegisterRequest::default()),
        register(&|mapper| mapper.protocol.clear()),
        register(&|mapper| mapper.protocol = "x".repeat(300)),
        register(&|mapper| mapper.name = "a\nb".into()),
        register(&|mapper| mapper.address.clear()),
        register(&|mapper| mapper.address = b"/run/edge-runtime/devices.sock".to_vec()),
        register(&|mapper| mapper.address = b"/etc/kubeedge/dmi.sock".to_vec()),
    ] {
        assert_eq!(world.ask(request), Err(Code::InvalidArgument));
    }
    for n in 0..32 {
        assert!(world.ask(registration(&format!("m{n}"), &format!("p{n}"), true)).is_ok());
    }
    assert_eq!(world.ask(registration("m", "lab", true)), Err(Code::ResourceExhausted));
    assert!(world.ask(registration("m7", "lab", true)).is_ok(), "instead of the one before");

    // Without end, from ever the same: others are kept from nothing by it.
    world.wait(60_000);
    let mut taken = 0;
    for _ in 0..100 {
        match world.ask(registration("m7", "lab", true)) {
            Ok(_) => taken += 1,
            Err(code) => assert_eq!(code, Code::ResourceExhausted),
        }
    }
    assert_eq!(taken, 40);
    world.wait(1_000);
    assert!(world.ask(registration("m7", "lab", true)).is_ok());

    let mut off = World::lab("ON");
    assert_eq!(off.ask(registration("m", "lab", true)), Err(Code::Unimplemented));
    assert!(off.twins.mappers().is_err());
}

#[test]
fn a_mapper_s_reports_are_the_device_s() {
    let mut world = World::dmi();
    world.wait(1_000);
    world.said.clear();
    let taken = world.twins_say("t1", vec![twin("temp", Some(""), Some("21.5")), twin("led", Some("ON"), Some("OFF"))]);
    assert_eq!(taken, Ok(Vec::new()));
    let topics = world.topics();
    assert!(topics.contains(&"t1/twin/update/document".to_owned()), "{topics:?}");
    assert!(topics.contains(&"t1/twin/update/delta".to_owned()), "{topics:?}");
    assert!(!topics.iter().any(|topic| topic.ends_with("result")));
    let report = world.acked();
    assert_eq!((reported(&report, "temp"), reported(&report, "led")), (Some("21.5"), Some("OFF")));
    assert_eq!((observed(&report, "temp"), observed(&report, "led")), (None, Some("ON")));

    // The mapper holds an older desired value: the status shows that, whatever the device reports.
    world.device("t1", UID, lab_device("DIM"));
    assert_eq!(world.twins_say("t1", vec![twin("led", Some("ON"), Some("DIM"))]), Ok(Vec::new()));
    world.wait(1_000);
    let report = world.tick().acked();
    assert_eq!((observed(&report, "led"), reported(&report, "led")), (Some("ON"), Some("DIM")));
    assert_eq!(world.twins_say("t1", vec![twin("led", None, Some("DIM"))]), Ok(Vec::new()));
    world.wait(1_000);
    let report = world.tick().acked();
    assert_eq!(observed(&report, "led"), Some("DIM"), "by who says nothing of it");

    let state = |state: &str, name: &str| {
        Request::State(ReportDeviceStatesRequest {
            device_name: name.into(),
            device_namespace: "default".into(),
            state: state.into(),
        })
    };
    assert_eq!(world.ask(state("OnLine", "t1")), Ok(Vec::new()));
    assert!(world.heard("t1/state/update/result").contains("\"online\""));
    assert_eq!(world.ask(state("up", "t1")), Err(Code::InvalidArgument));
    assert_eq!(world.ask(state("ok", "t9")), Err(Code::NotFound));
}

#[test]
fn malformed_report_does_not_affect_other_properties() {
    let mut world = World::dmi();
    assert_eq!(world.ask(Request::Twins(ReportDeviceStatusRequest::default())), Err(Code::InvalidArgument));
    assert_eq!(world.twins_say("t9", vec![twin("temp", None, Some("1"))]), Err(Code::NotFound));
    assert_eq!(world.twins_say("t1", Vec::new()), Ok(Vec::new()));
    for alone in [
        twin("temp", None, None),
        twin("temp", None, Some("warm")),
        twin("temp", None, Some("126")),
        twin("stranger", Some("1"), Some("1")),
        twin("", None, None),
    ] {
        assert_eq!(world.twins_say("t1", vec![alone.clone()]), Err(Code::InvalidArgument), "{alone:?}");
        assert_eq!(world.twins_say("t1", vec![alone, twin("led", None, Some("1"))]), Ok(Vec::new()));
    }
    let long = "x".repeat(5_000);
    assert_eq!(world.twins_say("t1", vec![twin("led", None, Some(&long))]), Err(Code::OutOfRange));
    assert_eq!(world.twins_say("t1", vec![twin("led", Some(&long), Some("1"))]), Err(Code::OutOfRange));
    assert_eq!((world.twin("led", "actual").as_deref(), world.twin("temp", "actual")), (Some("1"), None));
}

#[test]
fn problem_of_a_device_is_reported_once() {
    let mut world = World::dmi();
    let mut mapper = world.register("m");
    let mut odd = lab_device("ON");
    odd.set_at(&["spec", "protocol", "configData", "deep"], json!({"a": 1}));
    for _ in 0..3 {
        world.device("t1", UID, odd.clone());
        world.serve(&mut mapper);
    }
    assert_eq!((world.events(), mapper.called().len()), (vec!["DeviceNotFitForMapper t1".to_owned()], 1));
    world.register("m");
    assert!(world.events().is_empty());
}

#[test]
fn endless_registrations_keep_to_the_write_limit() {
    let mut world = World::dmi();
    let (mut pages, per_hour) = (0, with_dmi().store.writes_per_hour);
    for second in 0..3_600 {
        world.wait(1_000);
        // Each time for another protocol, so that each time another row must be stored.
        let _ = world.ask(registration("m", ["lab", "other"][second % 2], true));
        for said in std::mem::take(&mut world.said) {
            if let Output::Tell(FromHelper::Keep { rows, .. }) = said {
                let bytes: usize = rows.iter().map(|row| row.uid.len() + row.record.len() + 32).sum();
                pages += 2 * bytes.div_ceil(4_096) as u64;
            }
        }
    }
    assert!(pages * 4_096 < per_hour * 3 / 2, "{pages} pages");
}
