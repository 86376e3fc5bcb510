//! Random events of devices, mappers and restarts. A mapper is never sent what it holds, or told twice to remove a
//! device, and finally each holds the right devices. [`Mapper`] fails where KubeEdge's framework would crash.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sampan_dmi::{
    DeviceStatus, MapperInfo, MapperRegisterRequest, ReportDeviceStatesRequest, ReportDeviceStatusRequest, Twin,
    TwinProperty,
};
use sampan_grpc::{Code, Status};

use super::mappers::{Calling, Mapper, lab_device, registration, with_dmi};
use super::*;

const NAMES: [&str; 3] = ["t1", "t2", "t3"];
const MAPPERS: [&str; 2] = ["m1", "m2"];

#[derive(Clone, Debug)]
enum News {
    /// A device, and the desired value of its LED.
    Device(usize, u8),
    /// Repeats an unchanged object, as after a status write.
    Same(usize),
    Gone(usize),
    Model(u8),
    ModelGone,
    Wish(usize, u8),
    /// A mapper reports a value of it.
    Reports(usize),
    /// A mapper starts, with the data at once or without.
    Starts(usize, bool),
    Stops(usize),
    /// The running calls succeed.
    Done,
    /// The running calls succeed, but the answers are lost.
    Lost,
    Refused,
    /// The helper dies, or ends in order.
    Helper(bool),
    Daemon,
    Wait(u64),
}

fn news() -> impl Strategy<Value = News> {
    let which = || 0..NAMES.len();
    prop_oneof![
        6 => (which(), 0..3_u8).prop_map(|(d, w)| News::Device(d, w)),
        2 => which().prop_map(News::Same),
        3 => which().prop_map(News::Gone),
        2 => (0..2_u8).prop_map(News::Model),
        1 => Just(News::ModelGone),
        2 => (which(), 0..3_u8).prop_map(|(d, w)| News::Wish(d, w)),
        2 => which().prop_map(News::Reports),
        3 => (0..2_usize, any::<bool>()).prop_map(|(m, d)| News::Starts(m, d)),
        1 => (0..2_usize).prop_map(News::Stops),
        12 => Just(News::Done),
        1 => Just(News::Lost),
        1 => Just(News::Refused),
        1 => any::<bool>().prop_map(News::Helper),
        1 => Just(News::Daemon),
        6 => prop_oneof![Just(0), Just(150), Just(1_000), Just(40_000)].prop_map(News::Wait),
    ]
}

struct Lab {
    world: World,
    /// The cloud's.
    bodies: BTreeMap<usize, u8>,
    model: Option<u8>,
    /// What the daemon has of the helper.
    rows: BTreeMap<String, String>,
    /// Those that run, by socket.
    running: BTreeMap<String, Mapper>,
    newest: Option<String>,
    flying: Vec<Calling>,
    /// That were done, and what gave reason for one.
    calls: usize,
    changes: usize,
}

fn uid(device: usize) -> String {
    format!("uid-{device}")
}

fn body(wanted: u8) -> Value {
    lab_device(["", "A", "B"][usize::from(wanted)])
}

impl Lab {
    fn new() -> Self {
        let mut world = World::new(&with_dmi());
        world.twins.told(world.now);
        world.link(true);
        Self {
            world,
            bodies: BTreeMap::new(),
            model: None,
            rows: BTreeMap::new(),
            running: BTreeMap::new(),
            newest: None,
            flying: Vec::new(),
            calls: 0,
            changes: 0,
        }
    }

    fn tell_model(&mut self) {
        if let Some(maximum) = self.model {
            let mut body = model();
            body["spec"]["properties"][0]["maximum"] = (125 + u32::from(maximum)).to_string().into();
            self.world.twins.object(self.world.now, Kind::DeviceModel, id("lab"), "model".into(), &body);
        }
    }

    fn tell_all(&mut self) {
        for (device, wanted) in self.bodies.clone() {
            self.world.device(NAMES[device], &uid(device), body(wanted));
        }
        self.tell_model();
        for (uid, record) in self.rows.clone() {
            self.world.twins.kept(uid, record);
        }
        self.world.twins.told(self.world.now);
        self.world.link(true);
    }

    fn tick(&mut self) {
        self.world.tick();
        let said = std::mem::take(&mut self.world.said);
        for output in said {
            match output {
                Output::Call { mapper, socket, call, path, message } => {
                    assert!(self.flying.iter().all(|flying| flying.mapper != mapper), "one after the other");
                    self.flying.push(Calling { mapper, socket, call, path, message });
                }
                Output::Hangup { mapper } => self.flying.retain(|flying| flying.mapper != mapper),
                Output::Tell(FromHelper::Keep { rows, .. }) => {
                    for Row { uid, record } in rows {
                        if record.is_empty() {
                            self.rows.remove(&uid)
                        } else {
                            self.rows.insert(uid, record)
                        };
                    }
                }
                Output::Answer { .. } | Output::Publish(_) | Output::Tell(_) => {}
            }
        }
    }

    /// Ends the running calls. A stopped mapper processes none.
    fn ends(&mut self, done: bool, answer: Result<(), Code>) {
        for Calling { socket, call, path, message, .. } in std::mem::take(&mut self.flying) {
            let answer = match self.running.get_mut(&socket) {
                None => Err(Code::Unavailable),
                Some(mapper) => {
                    if done {
                        mapper.call(path, &message);
                        self.calls += 1;
                    }
                    answer
                }
            };
            let answer = answer.map_err(|code| Status::new(code, "why"));
            self.world.twins.answered(self.world.now, call, answer);
        }
    }

    fn happens(&mut self, news: News) {
        let now = self.world.now;
        match news {
            News::Device(device, wanted) => {
                self.changes += 1;
                self.bodies.insert(device, wanted);
                self.world.device(NAMES[device], &uid(device), body(wanted));
            }
            News::Same(device) => {
                if let Some(wanted) = self.bodies.get(&device) {
                    self.world.device(NAMES[device], &uid(device), body(*wanted));
                }
            }
            News::Gone(device) => {
                self.changes += 1;
                self.bodies.remove(&device);
                // The daemon forgets it, too.
                self.rows.remove(&uid(device));
                self.world.twins.gone(now, Kind::Device, &id(NAMES[device]), &uid(device));
            }
            News::Model(maximum) => {
                self.changes += 4;
                self.model = Some(maximum);
                self.tell_model();
            }
            News::ModelGone => {
                self.model = None;
                self.world.twins.gone(now, Kind::DeviceModel, &id("lab"), "model");
            }
            News::Wish(device, wanted) => {
                self.changes += 1;
                let _ = self.world.twins.set(now, &id(NAMES[device]), "led", ["", "L", "M"][usize::from(wanted)]);
            }
            News::Reports(device) => {
                let _ = self.world.twins.get(Some(&id(NAMES[device])));
                self.world.report("temp", "21");
            }
            News::Starts(mapper, with_data) => {
                // As often as it may.
                self.world.wait(500);
                let now = self.world.now;
                self.changes += 8;
                let name = MAPPERS[mapper];
                // A call to the old process: it receives nothing more.
                self.flying.retain(|flying| flying.socket != format!("{name}.sock"));
                let mut started = Mapper::default();
                self.world.twins.asked(now, 1, registration(name, "lab", with_data), String::new());
                for output in self.world.twins.outputs() {
                    if let Output::Answer { answer, .. } = &output {
                        started.registered(answer.as_ref().expect("it is registered"));
                    }
                    self.world.said.push(output);
                }
                self.running.insert(format!("{name}.sock"), started);
                self.newest = Some(format!("{name}.sock"));
            }
            News::Stops(mapper) => drop(self.running.remove(&format!("{}.sock", MAPPERS[mapper]))),
            News::Done => self.ends(true, Ok(())),
            News::Lost => {
                // Any other lost call would rightly be repeated.
                let removes = |flying: &Calling| flying.path.ends_with("RemoveDevice");
                if self.flying.iter().all(removes) {
                    self.ends(true, Err(Code::DeadlineExceeded));
                }
            }
            News::Refused => {
                let removes = |flying: &Calling| flying.path.ends_with("RemoveDevice");
                if !self.flying.iter().any(removes) {
                    self.ends(false, Err(Code::Unknown));
                }
            }
            News::Helper(in_order) => {
                // Running calls succeed or not, and only an orderly end stores their results.
                self.ends(true, Ok(()));
                self.tick();
                self.ends(true, Ok(()));
                self.tick();
                if in_order {
                    self.world.twins.end(now);
                } else {
                    self.world.wait(1_000);
                }
                self.tick();
                // Running calls: the removal of a device is not retried, all others are.
                self.flying.retain(|flying| flying.path.ends_with("RemoveDevice"));
                self.ends(true, Ok(()));
                self.world = World { now, ..World::new(&with_dmi()) };
                self.tell_all();
            }
            News::Daemon => {
                self.world.twins.daemon_came(now);
                self.tell_all();
            }
            News::Wait(millis) => self.world.wait(millis),
        }
        self.tick();
    }

    fn comes_to_rest(&mut self) {
        self.model.get_or_insert(0);
        self.tell_model();
        self.changes += 4;
        for _ in 0..60 {
            self.happens(News::Wait(30_000));
            self.happens(News::Done);
        }
        assert!(self.flying.iter().all(|flying| !self.running.contains_key(&flying.socket)));
        for (socket, mapper) in &self.running {
            let newest = self.newest.as_ref() == Some(socket);
            for (device, name) in NAMES.iter().enumerate() {
                let seen = self.world.twins.get(Some(&id(name))).ok().filter(|_| newest);
                assert_eq!(seen.is_some(), newest && self.bodies.contains_key(&device));
                let led = seen.map(|seen| {
                    let properties = seen[0]["properties"].as_array().expect("a list").clone();
                    let led = properties.into_iter().find(|held| held["name"] == "led").expect("a LED");
                    let value = |which: &str| led[which]["value"].as_str().map(str::to_owned);
                    value("local").or_else(|| value("desired")).unwrap_or_default()
                });
                assert_eq!(mapper.led(&format!("default/{name}")).map(str::to_owned), led, "{name} at {socket}");
            }
        }
        assert!(self.calls <= self.changes, "{} calls for {} changes", self.calls, self.changes);
        // Without news nothing happens, whichever process restarts.
        let calls = self.calls;
        for news in [News::Daemon, News::Helper(true), News::Daemon, News::Helper(false)] {
            self.happens(news);
            for _ in 0..3 {
                self.happens(News::Wait(1_000));
                self.happens(News::Done);
            }
        }
        assert_eq!(self.calls, calls, "a restart is no change");
    }
}

/// Any text in a request, valid or not.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop_oneof![Just("default"), Just("t1"), Just("temp"), Just("led"), Just("21.5"), Just("lab"), Just("ok"), Just("")]
            .prop_map(str::to_owned),
        1 => ".{0,20}",
        1 => Just("/etc/kubeedge/m.sock".to_owned()),
        1 => Just("x".repeat(5_000)),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let value = || {
        (word(), proptest::collection::btree_map(word(), word(), 0..2))
            .prop_map(|(value, metadata)| TwinProperty { value, metadata })
    };
    let twin = (word(), proptest::option::of(value()), proptest::option::of(value()))
        .prop_map(|(property_name, observed_desired, reported)| Twin { property_name, observed_desired, reported });
    let status = proptest::collection::vec(twin, 0..4).prop_map(|twins| DeviceStatus {
        twins,
        report_to_cloud: true,
        report_cycle: -1,
    });
    let mapper = [(); 4].map(|()| word());
    let mapper =
        (mapper, proptest::collection::vec(any::<u8>(), 0..9)).prop_map(|([name, version, protocol, address], raw)| {
            let address = if raw.len() > 6 { raw } else { address.into_bytes() };
            MapperInfo { name, version, protocol, address, ..MapperInfo::default() }
        });
    prop_oneof![
        (word(), word(), proptest::option::of(status)).prop_map(|(device_name, device_namespace, reported_device)| {
            Request::Twins(ReportDeviceStatusRequest { device_name, reported_device, device_namespace })
        }),
        (word(), word(), word()).prop_map(|(device_name, device_namespace, state)| {
            Request::State(ReportDeviceStatesRequest { device_name, device_namespace, state })
        }),
        (any::<bool>(), proptest::option::of(mapper))
            .prop_map(|(with_data, mapper)| Request::Register(MapperRegisterRequest { with_data, mapper })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each is answered once, what is refused changes nothing, and the next one is served.
    #[test]
    fn any_request_of_a_mapper_is_answered(requests in proptest::collection::vec(request(), 1..8)) {
        let mut world = World::dmi();
        for request in requests {
            let before = (world.twins.get(None), world.twins.mappers());
            if world.ask(request).is_err() {
                prop_assert_eq!(before, (world.twins.get(None), world.twins.mappers()));
            }
        }
        world.register("m");
    }

    #[test]
    fn mappers_converge_after_random_events(all in proptest::collection::vec(news(), 1..100)) {
        let mut lab = Lab::new();
        for news in all {
            lab.happens(news);
        }
        lab.comes_to_rest();
    }
}
