//! News of devices on the link: one batch at a time, and only where both sides want it.

mod common;

use common::{NOW, Pair, listed};
use edge_protocol::bridge::{BridgeEvent, BridgeSettings};
use edge_protocol::edge::{EdgeEvent, EdgeFacts};
use edge_protocol::frame::encode;
use edge_protocol::message::{DeviceRefusal, DeviceReport, MAX_DEVICES, ToCloud, TwinReport, TwinValue};
use edge_protocol::version::Wants;

fn facts(devices: bool) -> EdgeFacts {
    EdgeFacts { wants: Wants { devices, ..Wants::default() }, ..EdgeFacts::new("n", "b-1") }
}

fn device(name: &str) -> DeviceReport {
    DeviceReport { namespace: "ns".into(), name: name.into(), uid: format!("uid-{name}"), ..DeviceReport::default() }
}

fn welcomed(devices: bool) -> Pair {
    let mut pair = Pair::with(listed("s"), facts(devices), BridgeSettings::new("n", "c", 1));
    pair.run(NOW).expect("they talk");
    pair
}

fn batches(pair: &Pair) -> Vec<u64> {
    let batch = |event: &BridgeEvent| if let BridgeEvent::Devices { batch, .. } = event { Some(*batch) } else { None };
    pair.bridge_events.iter().filter_map(batch).collect()
}

#[test]
fn next_batch_waits_until_the_last_is_written() {
    let mut pair = welcomed(true);
    assert!(pair.edge.devices(1, vec![(&device("a")).into()]));
    pair.run(NOW).expect("they talk");
    assert!(pair.edge.devices(2, vec![(&device("b")).into()]));
    assert!(pair.edge.devices(3, vec![(&device("c")).into()]));
    pair.run(NOW).expect("they talk");
    assert_eq!(batches(&pair), [1], "the first is not acknowledged");
    pair.bridge.devices_written(7, vec![]);
    assert_eq!(pair.run(NOW), Ok(0), "nobody has asked about that one");
    let refused = vec![DeviceRefusal { uid: "uid-a".into(), reason: "no".into() }];
    pair.bridge.devices_written(1, refused.clone());
    pair.bridge.devices_written(1, vec![]);
    assert_eq!(pair.run(NOW), Ok(2));
    assert_eq!(pair.edge_events.last(), Some(&EdgeEvent::DevicesAcked { batch: 1, refused }));
    assert_eq!(batches(&pair), [1, 3], "the third has taken the place of the second");
}

#[test]
fn node_without_the_feature_cannot_report_devices() {
    let mut pair = welcomed(false);
    assert!(!pair.edge.devices(1, vec![(&device("a")).into()]));
    let frame = encode(&ToCloud::Devices { batch: 1, devices: vec![] });
    assert!(pair.bridge.handle(&mut pair.state, &frame, NOW).is_err());
}

#[test]
fn malformed_report_of_devices_ends_the_connection() {
    let frame = |devices: Vec<DeviceReport>| {
        encode(&ToCloud::Devices { batch: 1, devices: devices.iter().map(serde_json::Value::from).collect() })
    };
    let many = (0..=MAX_DEVICES).map(|number| device(&number.to_string())).collect();
    let long = TwinReport { property: "p".repeat(300), ..TwinReport::default() };
    let named = vec![DeviceReport { twins: vec![long], ..device("a") }];
    for frame in [frame(many), frame(named), frame(vec![device(&"x".repeat(254))])] {
        let mut pair = welcomed(true);
        assert!(pair.bridge.handle(&mut pair.state, &frame, NOW).is_err());
    }
    let mut pair = welcomed(true);
    assert_eq!(pair.bridge.handle(&mut pair.state, &frame(vec![device("a")]), NOW), Ok(()));
    assert!(pair.bridge.handle(&mut pair.state, &frame(vec![device("a")]), NOW).is_err(), "two at once");
}

#[test]
fn a_batch_that_no_message_can_hold_is_not_begun() {
    let mut pair = welcomed(true);
    let value = TwinValue { value: "v".repeat(4 << 20), ..TwinValue::default() };
    let twins = vec![TwinReport { property: "p".into(), reported: Some(value), observed: None }];
    assert!(!pair.edge.devices(1, vec![(&DeviceReport { twins, ..device("a") }).into()]));
    // Also refuses a report that needs more memory than the bridge permits.
    let twin = |number: usize| TwinReport {
        property: format!("p{number}"),
        reported: Some(TwinValue { value: "1".into(), ..TwinValue::default() }),
        observed: None,
    };
    let many = DeviceReport { twins: (0..6_000).map(twin).collect(), ..device("a") };
    assert!(!pair.edge.devices(2, vec![(&many).into()]));
    assert!(pair.edge.devices(3, vec![(&device("a")).into()]));
    assert!(pair.run(NOW).is_ok());
}
