//! Any news in any order: what always holds.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sampan_devices_control::Report;

use super::*;

const NAMES: [&str; 2] = ["t1", "t2"];
const PROPERTIES: [&str; 3] = ["temp", "led", "extra"];

#[derive(Clone, Debug)]
enum News {
    Model(bool),
    /// Which device, which uid of it, the desired value of its LED; whether it has an LED.
    Device(usize, u8, u8, bool),
    Gone(usize, u8),
    /// Properties that report their next value; the last value may be too large.
    Reports(usize, Vec<usize>, bool),
    Wish(usize, u8),
    Clear(usize, usize),
    State(usize, usize),
    Link(bool),
    Ack,
    StaleAck,
    Broker(bool),
    Daemon(bool),
    Wait(u64),
    Raw(String, Vec<u8>),
}

fn news() -> impl Strategy<Value = News> {
    let which = || 0..NAMES.len();
    prop_oneof![
        1 => any::<bool>().prop_map(News::Model),
        4 => (which(), 0..2_u8, 0..3_u8, any::<bool>()).prop_map(|(d, u, w, led)| News::Device(d, u, w, led)),
        1 => (which(), 0..2_u8).prop_map(|(d, u)| News::Gone(d, u)),
        10 => (which(), proptest::collection::vec(0..PROPERTIES.len(), 1..3), proptest::bool::weighted(0.2))
            .prop_map(|(d, p, bad)| News::Reports(d, p, bad)),
        2 => (which(), 0..3_u8).prop_map(|(d, w)| News::Wish(d, w)),
        1 => (which(), 0..PROPERTIES.len()).prop_map(|(d, p)| News::Clear(d, p)),
        2 => (which(), 0..5_usize).prop_map(|(d, s)| News::State(d, s)),
        2 => any::<bool>().prop_map(News::Link),
        6 => Just(News::Ack),
        1 => Just(News::StaleAck),
        1 => any::<bool>().prop_map(News::Broker),
        1 => any::<bool>().prop_map(News::Daemon),
        8 => prop_oneof![Just(0), Just(300), Just(1_000), Just(70_000), Just(700_000)].prop_map(News::Wait),
        1 => (".{0,40}", proptest::collection::vec(any::<u8>(), 0..60)).prop_map(|(t, p)| News::Raw(t, p)),
    ]
}

/// Documents out of the words that requests have.
fn document() -> impl Strategy<Value = Value> {
    let word = || {
        prop_oneof![
            Just("event_id"),
            Just("twin"),
            Just("expected"),
            Just("actual"),
            Just("value"),
            Just("metadata"),
            Just("type"),
            Just("state"),
            Just("online"),
            Just("temp"),
            Just("led"),
            Just("int"),
            Just("21.5"),
            Just(""),
            Just("\u{1f600}\u{0}"),
        ]
        .prop_map(str::to_owned)
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    let tree = leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            6 => proptest::collection::btree_map(word(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    let known = proptest::collection::btree_map(
        prop_oneof![Just("temp".to_owned()), Just("led".to_owned()), Just("x".to_owned())],
        prop_oneof![
            tree.clone(),
            (tree.clone(), tree.clone()).prop_map(|(a, b)| json!({"expected": {"value": a}, "actual": {"value": b}})),
            (".{0,8}", ".{0,8}").prop_map(|(a, b)| json!({"expected": {"value": a}, "actual": {"value": b}})),
        ],
        0..4,
    );
    let known = known.prop_map(|twin| json!({"event_id": "e", "twin": twin, "state": "ok"}));
    prop_oneof![tree, known]
}

/// Reports that the bridge has, and those on their way.
#[derive(Default)]
struct Bridge {
    flying: Option<(u64, Vec<DeviceReport>)>,
    link: bool,
    daemon: bool,
    seqs: BTreeMap<String, u64>,
    /// The newest value of each device and property.
    values: BTreeMap<(String, String), u64>,
}

struct Lab {
    world: World,
    bridge: Bridge,
    broker: bool,
    counter: u64,
    bodies: BTreeMap<usize, (u8, u8, bool)>,
}

fn uid(device: usize, which: u8) -> String {
    format!("{device}-{which}")
}

fn body(wanted: u8, led: bool) -> Value {
    let mut properties = vec![json!({"name": "temp"})];
    if led {
        let wanted = ["", "A", "B"][usize::from(wanted)];
        properties.push(json!({"name": "led", "desired": {"value": wanted}}));
    }
    json!({"spec": {"deviceModelRef": {"name": "lab"}, "properties": properties}})
}

impl Lab {
    fn new() -> Self {
        let report = Report { per_second: 3, ..Report::default() };
        let mut world = World::new(&Settings { report, ..settings() });
        world.twins.told(world.now);
        let bridge = Bridge { daemon: true, ..Bridge::default() };
        Self { world, bridge, broker: true, counter: 0, bodies: BTreeMap::new() }
    }

    fn tell_all(&mut self) {
        let World { twins, now, .. } = &mut self.world;
        twins.daemon_came(*now);
        for (device, (which, wanted, led)) in &self.bodies {
            twins.object(*now, Kind::Device, id(NAMES[*device]), uid(*device, *which), &body(*wanted, *led));
        }
        twins.told(*now);
    }

    fn update(&mut self, device: usize, twin: &Value) {
        let text = json!({"event_id": "e", "twin": twin}).to_string();
        let topic = format!("$hw/events/device/default/{}/twin/update", NAMES[device]);
        let seen = |world: &World| world.twins.get(Some(&id(NAMES[device]))).ok();
        let before = seen(&self.world);
        self.world.twins.message(self.world.now, &topic, Some(text.as_bytes()), false);
        let after = seen(&self.world);
        let outputs = self.world.twins.outputs();
        let refused = outputs.iter().any(|output| match output {
            Output::Publish(message) => String::from_utf8_lossy(&message.payload).contains("\"code\":"),
            _ => false,
        });
        if refused {
            assert_eq!(before, after, "refused and done");
        } else if let (Some(after), Some(twin), true) = (after, twin.as_object(), self.broker) {
            for (name, change) in twin {
                let held =
                    after[0]["properties"].as_array().expect("a list").iter().find(|held| held["name"] == **name);
                let reported = held.map_or(Value::Null, |held| held["reported"]["value"].clone());
                assert_eq!(reported, change["actual"]["value"], "taken and not done: {name}");
            }
        }
        self.take(outputs);
    }

    fn happens(&mut self, news: News) {
        let now = self.world.now;
        match news {
            News::Model(true) => self.world.model(),
            News::Model(false) => self.world.twins.gone(now, Kind::DeviceModel, &id("lab"), "model"),
            News::Device(device, which, wanted, led) => {
                self.bodies.insert(device, (which, wanted, led));
                self.world.device(NAMES[device], &uid(device, which), body(wanted, led));
            }
            News::Gone(device, which) => {
                if self.bodies.get(&device).is_some_and(|(held, ..)| *held == which) {
                    self.bodies.remove(&device);
                }
                self.world.twins.gone(now, Kind::Device, &id(NAMES[device]), &uid(device, which));
            }
            News::Reports(device, properties, bad) => {
                let mut twin = serde_json::Map::new();
                for property in properties {
                    self.counter += 1;
                    twin.insert(
                        PROPERTIES[property].to_owned(),
                        json!({"actual": {"value": self.counter.to_string()}}),
                    );
                }
                if bad {
                    twin.insert("zz".to_owned(), json!({"actual": {"value": "x".repeat(5_000)}}));
                }
                // Below the maximum of the model, or refused when it is not.
                self.update(device, &Value::Object(twin));
            }
            News::Wish(device, wanted) => {
                let value = ["", "L", "M"][usize::from(wanted)];
                let _ = self.world.twins.set(now, &id(NAMES[device]), "led", value);
            }
            News::Clear(device, property) => {
                let topic = format!("$hw/events/device/default/{}/twin/update", NAMES[device]);
                let text = format!(r#"{{"twin":{{"{}":null}}}}"#, PROPERTIES[property]);
                self.world.twins.message(now, &topic, Some(text.as_bytes()), false);
            }
            News::State(device, state) => {
                let topic = format!("$hw/events/device/default/{}/state/update", NAMES[device]);
                let text = format!(r#"{{"state":"{}"}}"#, request::STATES[state]);
                self.world.twins.message(now, &topic, Some(text.as_bytes()), false);
            }
            News::Link(up) => {
                if self.bridge.daemon {
                    // Reports on their way may have arrived or not.
                    if self.counter.is_multiple_of(2) {
                        self.arrives();
                    }
                    self.bridge.flying = None;
                    self.bridge.link = up;
                    self.world.link(up);
                }
            }
            News::Ack => {
                if let Some((batch, _)) = self.bridge.flying {
                    self.arrives();
                    self.bridge.flying = None;
                    self.world.twins.acked(now, batch, &[]);
                }
            }
            News::StaleAck => self.world.twins.acked(now, 1, &[]),
            News::Broker(up) => {
                self.broker = up;
                self.world.twins.broker(now, up);
            }
            News::Daemon(true) => {
                self.bridge = Bridge { flying: None, link: false, daemon: true, ..std::mem::take(&mut self.bridge) };
                self.tell_all();
            }
            News::Daemon(false) => {
                self.bridge = Bridge { flying: None, link: false, daemon: false, ..std::mem::take(&mut self.bridge) };
                self.world.twins.daemon_went(now);
            }
            News::Wait(millis) => self.world.wait(millis),
            News::Raw(topic, payload) => self.world.twins.message(now, &topic, Some(&payload), false),
        }
        self.world.twins.tick(self.world.now, 100);
        let outputs = self.world.twins.outputs();
        assert!(outputs.len() < 20, "{outputs:?}");
        self.take(outputs);
        assert!(self.world.twins.wake().is_none_or(|at| at > self.world.now.mono), "it would never rest");
    }

    /// Reports on their way arrive at the bridge.
    fn arrives(&mut self) {
        for report in self.bridge.flying.iter().flat_map(|(_, devices)| devices) {
            for twin in &report.twins {
                let Some(value) = twin.reported.as_ref().and_then(|value| value.value.parse().ok()) else { continue };
                let key = (report.uid.clone(), twin.property.clone());
                let held = self.bridge.values.entry(key).or_insert(value);
                assert!(*held <= value, "{value} after {held}: {report:?}");
                *held = value;
            }
        }
    }

    fn take(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Publish(_) => assert!(self.broker, "nobody hears it"),
                Output::Tell(FromHelper::Report { batch, devices }) => {
                    let read = |device| DeviceReport::deserialize(device).expect("a report");
                    let devices: Vec<DeviceReport> = devices.iter().map(read).collect();
                    assert!(self.bridge.link && self.bridge.daemon && self.bridge.flying.is_none(), "a second batch");
                    assert!((1..=3).contains(&devices.len()));
                    for report in &devices {
                        let held = self.bodies.iter().any(|(device, (which, ..))| uid(*device, *which) == report.uid);
                        assert!(held, "of a device that is gone");
                        let last = self.bridge.seqs.insert(report.uid.clone(), report.seq);
                        assert!(last.is_none_or(|last| last < report.seq));
                        assert!(report.twins.iter().all(|twin| twin.property != "extra"));
                    }
                    self.bridge.flying = Some((batch, devices));
                }
                Output::Tell(_) => assert!(self.bridge.daemon, "nobody hears it"),
                other => panic!("DMI is off: {other:?}"),
            }
        }
    }

    /// Runs without faults for long enough: then the bridge has all values of the devices.
    fn comes_to_rest(&mut self) {
        self.happens(News::Daemon(true));
        self.happens(News::Link(true));
        for _ in 0..20 {
            self.happens(News::Wait(1_000));
            self.happens(News::Ack);
        }
        assert!(self.bridge.flying.is_none());
        for (device, (which, ..)) in self.bodies.clone() {
            let seen = self.world.twins.get(Some(&id(NAMES[device]))).expect("it is here");
            for property in seen[0]["properties"].as_array().expect("a list") {
                let name = property["name"].as_str().unwrap_or_default();
                let value = property["reported"]["value"].as_str().and_then(|value| value.parse().ok());
                let told = self.bridge.values.get(&(uid(device, which), name.to_owned())).copied();
                assert!(
                    property["extra"] == true || value.is_none() || told == value,
                    "{name}: {value:?}, told {told:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Texts that look like requests: each is answered once, and does no harm.
    #[test]
    fn any_message_is_answered(document in document(), what in 0..3_usize, cut in any::<prop::sample::Index>(), whole in any::<bool>()) {
        let mut world = World::lab("ON");
        world.tick().said.clear();
        let mut text = document.to_string();
        if !whole {
            let cut = cut.index(text.len() + 1);
            text = text.chars().take(cut).collect();
        }
        let what = ["twin/update", "twin/get", "state/update"][what];
        let before = world.twins.get(None);
        world.t1(what, &text);
        let answers: Vec<(String, String)> = world.published();
        let results: Vec<&(String, String)> = answers.iter().filter(|(topic, _)| topic.ends_with("/result")).collect();
        prop_assert_eq!(results.len(), 1);
        let answer: Value = serde_json::from_str(&results[0].1).expect("JSON");
        prop_assert!(answer["event_id"].is_string() && answer["timestamp"].is_u64());
        if answer.get("code").is_some() {
            prop_assert_eq!(answers.len(), 1);
            prop_assert_eq!(before, world.twins.get(None));
        }
        world.report("temp", "1");
        prop_assert!(world.heard("t1/twin/update/result").contains("\"actual\""));
    }

    #[test]
    fn values_converge_after_random_events(all in proptest::collection::vec(news(), 1..120)) {
        let mut lab = Lab::new();
        for news in all {
            lab.happens(news);
        }
        lab.comes_to_rest();
    }
}
