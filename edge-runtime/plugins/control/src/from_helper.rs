//! Parses [`FromHelper`] from JSON by hand, because derived code is several times as large for the daemon. As with a
//! derive, a missing field or one of another type is an error.

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use crate::{Asked, Device, FromHelper, are_edits};

impl<'de> Deserialize<'de> for FromHelper {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let line = Value::deserialize(deserializer)?;
        read(line).ok_or_else(|| D::Error::custom("no line of a helper"))
    }
}

fn read(mut line: Value) -> Option<FromHelper> {
    let all = line.as_object_mut().filter(|all| all.len() == 1)?;
    let (kind, body) = all.iter_mut().next()?;
    let number = |field: &str| body[field].as_u64();
    Some(match kind.as_str() {
        "hello" => FromHelper::Hello { version: number("version")?.try_into().ok()? },
        "devices" => {
            let all = list(body, "all")?.into_iter().map(device).collect::<Option<_>>()?;
            FromHelper::Devices { resource: text(body, "resource")?, all }
        }
        "gone" => FromHelper::Gone { resource: text(body, "resource")? },
        "told" => FromHelper::Told {},
        "ready" => FromHelper::Ready { refused: texts(body, "refused")? },
        "allocated" => {
            let (id, pre_start) = (number("id")?, body["preStart"].as_bool()?);
            let edits = field(body, "edits").filter(are_edits)?;
            FromHelper::Allocated { id, ids: texts(body, "ids")?, pre_start, edits }
        }
        "prepared" => FromHelper::Prepared { id: number("id")? },
        "failed" => {
            let (id, gone) = (number("id")?, body["gone"].as_bool()?);
            FromHelper::Failed { id, why: text(body, "why")?, gone }
        }
        "mounted" => FromHelper::Mounted { id: number("id")?, path: text(body, "path")? },
        "unmounted" => FromHelper::Unmounted { id: number("id")? },
        "drivers" => FromHelper::Drivers { drivers: field(body, "drivers")? },
        "again" => FromHelper::Again { pod: text(body, "pod")?, volume: text(body, "volume")? },
        "askResources" => FromHelper::AskResources { id: number("id")?, what: asked(field(body, "what")?)? },
        "pong" => FromHelper::Pong {},
        "counters" => FromHelper::Counters { counters: field(body, "counters")? },
        _ => return None,
    })
}

fn device(mut device: Value) -> Option<Device> {
    let healthy = device["healthy"].as_bool()?;
    let numa = device["numa"].as_array()?.iter().map(Value::as_i64).collect::<Option<_>>()?;
    Some(Device { id: text(&mut device, "id")?, healthy, numa })
}

fn asked(mut what: Value) -> Option<Asked> {
    let all = what.as_object_mut().filter(|all| all.len() == 1)?;
    let (kind, body) = all.iter_mut().next()?;
    Some(match kind.as_str() {
        "list" => Asked::List {},
        "allocatable" => Asked::Allocatable {},
        "get" => Asked::Get { namespace: text(body, "namespace")?, name: text(body, "name")? },
        _ => return None,
    })
}

fn field(body: &mut Value, name: &str) -> Option<Value> {
    body.get_mut(name).map(Value::take)
}

fn text(body: &mut Value, name: &str) -> Option<String> {
    string(field(body, name)?)
}

fn string(value: Value) -> Option<String> {
    if let Value::String(text) = value { Some(text) } else { None }
}

fn list(body: &mut Value, name: &str) -> Option<Vec<Value>> {
    if let Value::Array(list) = field(body, name)? { Some(list) } else { None }
}

fn texts(body: &mut Value, name: &str) -> Option<Vec<String>> {
    list(body, name)?.into_iter().map(string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{DeviceNode, Edits, Mount, Number, Pair};

    #[test]
    fn written_message_is_parsed() {
        let text = |text: &str| text.to_owned();
        let edits = Edits {
            env: vec![Pair { name: text("A"), value: text("ü") }],
            mounts: vec![Mount {
                container: text("/c"),
                host: text("/h"),
                read_only: true,
                options: vec![text("nodev")],
            }],
            devices: vec![DeviceNode {
                container: text("/dev/x"),
                host: text("/dev/y"),
                permissions: text("rw"),
                number: Some(Number { block: false, major: 1, minor: 3 }),
                mode: None,
                uid: Some(7),
                gid: None,
            }],
            annotations: vec![Pair { name: text("a/b"), value: String::new() }],
        };
        let device = Device { id: text("a"), healthy: true, numa: vec![-1, 0] };
        let get = Asked::Get { namespace: text("ns"), name: text("p") };
        for line in [
            FromHelper::Hello { version: 2 },
            FromHelper::Devices { resource: text("r"), all: vec![device] },
            FromHelper::Devices { resource: text("r"), all: Vec::new() },
            FromHelper::Gone { resource: text("r") },
            FromHelper::Told {},
            FromHelper::Ready { refused: vec![text("x")] },
            FromHelper::Allocated { id: u64::MAX, ids: vec![text("a")], pre_start: true, edits: json!(edits) },
            FromHelper::Allocated { id: 0, ids: Vec::new(), pre_start: false, edits: json!(Edits::default()) },
            FromHelper::Prepared { id: 1 },
            FromHelper::Failed { id: 1, why: text("w"), gone: true },
            FromHelper::Mounted { id: 2, path: text("/p") },
            FromHelper::Unmounted { id: 3 },
            FromHelper::Drivers { drivers: json!([{"name": "d"}]) },
            FromHelper::Again { pod: text("u"), volume: text("v") },
            FromHelper::AskResources { id: 1, what: Asked::List {} },
            FromHelper::AskResources { id: 1, what: Asked::Allocatable {} },
            FromHelper::AskResources { id: 1, what: get },
            FromHelper::Pong {},
            FromHelper::Counters { counters: json!({"text": "x"}) },
        ] {
            let written = serde_json::to_string(&line).expect("JSON");
            assert_eq!(serde_json::from_str::<FromHelper>(&written).ok(), Some(line), "{written}");
        }
    }

    #[test]
    fn malformed_line_is_refused() {
        for wrong in [
            json!(null),
            json!("hello"),
            json!({}),
            json!({"hello": {}}),
            json!({"hello": {"version": 1_u64 << 40}}),
            json!({"hello": {"version": 2}, "pong": {}}),
            json!({"devices": {"resource": "r", "all": [{"id": "a", "healthy": true}]}}),
            json!({"devices": {"resource": "r", "all": [{"id": "a", "healthy": true, "numa": ["x"]}]}}),
            json!({"devices": {"resource": "r", "all": [7]}}),
            json!({"devices": {"all": []}}),
            json!({"allocated": {"id": 1, "ids": ["a"], "preStart": true, "edits": {}}}),
            json!({"allocated": {"id": 1, "ids": [1], "preStart": true, "edits":
                {"env": [], "mounts": [], "devices": [], "annotations": []}}}),
            json!({"failed": {"id": 1, "why": "w"}}),
            json!({"askResources": {"id": 1, "what": "list"}}),
            json!({"askResources": {"id": 1, "what": {"get": {"name": "n"}}}}),
            json!({"ready": []}),
            json!({"mounted": {"id": 1}}),
            json!({"unmounted": {}}),
            json!({"drivers": {}}),
            json!({"again": {"pod": "u", "volume": 1}}),
            json!({"counters": {}}),
            json!({"other": {}}),
        ] {
            assert!(serde_json::from_value::<FromHelper>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
