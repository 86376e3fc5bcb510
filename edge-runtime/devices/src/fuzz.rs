//! Untrusted input of the helper, without sockets: for the fuzz targets.

use std::time::Duration;

use sampan_devices_control::{Kind, Named, Settings};
use serde_json::{Value, json};

use crate::dmi::request;
use crate::mqtt::packet_fuzz;
use crate::twins::{Now, Output, Twins};

/// Input from a broker: the packets must not depend on how the bytes are split.
pub fn broker(bytes: &[u8]) {
    packet_fuzz(bytes);
}

/// Input from a program that posts to the servicebus.
pub fn servicebus(bytes: &[u8]) {
    crate::rules::servicebus::fuzz_request(bytes);
}

/// Pieces of (what, length, bytes): a message of MQTT on some topic, an object of the API, a call of a mapper, time that passes.
pub fn twins(mut bytes: &[u8]) {
    let typed = json!({"mqtt": {"broker": "tcp://a:1"}, "dmi": {"folder": "/nonexistent"}});
    let settings = Settings::read(&typed).map(|read| read.settings).unwrap_or_default();
    let mut twins = Twins::new("edge-1".to_owned(), &settings, 1);
    let mut now = Now { mono: 1_000, wall: 1_700_000_000_000 };
    let id = || Named { namespace: "default".into(), name: "t1".into() };
    let property = json!({"name": "temp", "type": "FLOAT", "minimum": "-40", "maximum": "125"});
    let model = json!({"spec": {"properties": [property, {"name": "led", "type": "STRING"}]}});
    let device = json!({"spec": {"deviceModelRef": {"name": "lab"}, "protocol": {"protocolName": "lab"},
        "properties": [{"name": "temp"}, {"name": "led", "desired": {"value": "ON"}}]}});
    let lab = Named { name: "lab".into(), ..id() };
    twins.daemon_came(now);
    twins.object(now, Kind::DeviceModel, lab.clone(), "m".to_owned(), &model);
    twins.object(now, Kind::Device, id(), "d".to_owned(), &device);
    twins.told(now);
    twins.link(now, true, true);
    twins.broker(now, true);
    let mut calls = 0;
    while let Some(([what, low, high], rest)) = bytes.split_first_chunk() {
        let (piece, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        bytes = rest;
        let topics = ["device/default/t1/twin/update", "device/default/t1/twin/get", "device/default/t1/state/update"];
        let paths = [
            sampan_dmi::manager::MAPPER_REGISTER,
            sampan_dmi::manager::REPORT_DEVICE_STATUS,
            sampan_dmi::manager::REPORT_DEVICE_STATES,
        ];
        match what % 10 {
            which @ 0..=2 => {
                let topic = topics.get(usize::from(which)).unwrap_or(&"");
                twins.message(now, &format!("$hw/events/{topic}"), Some(piece), what & 0x80 != 0);
            }
            3 => twins.message(now, &String::from_utf8_lossy(piece), Some(b"{}"), false),
            which @ 4..=6 => {
                let path = paths.get(usize::from(which - 4)).unwrap_or(&"");
                if let Ok(read) = request::read(path, piece) {
                    calls += 1;
                    twins.asked(now, calls, read, String::new());
                }
            }
            7 => {
                if let Ok(body) = serde_json::from_slice::<Value>(piece) {
                    let (kind, named) = match what & 0x40 {
                        0 => (Kind::Device, id()),
                        _ => (Kind::DeviceModel, lab.clone()),
                    };
                    twins.object(now, kind, named, "d".to_owned(), &body);
                }
            }
            8 => twins.kept("d".to_owned(), String::from_utf8_lossy(piece).into_owned()),
            _ => now.mono += u64::from(*low) * 100,
        }
        twins.tick(now, 64);
        for output in twins.outputs() {
            match output {
                Output::Publish(message) => {
                    let text: Result<Value, _> = serde_json::from_slice(&message.payload);
                    assert!(text.is_ok() && message.topic.starts_with("$hw/events/"), "{}", message.topic);
                }
                Output::Call { call, .. } => twins.answered(now, call, Ok(())),
                Output::Tell(line) => drop(serde_json::to_vec(&line)),
                Output::Answer { .. } | Output::Hangup { .. } => {}
            }
        }
        now.mono += u64::try_from(Duration::from_millis(1).as_millis()).unwrap_or(1);
    }
    assert!(twins.get(None).is_ok(), "everything can be shown");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_input_is_answered_or_ignored(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            super::twins(&bytes);
            super::broker(&bytes);
            super::servicebus(&bytes);
        }
    }
}
