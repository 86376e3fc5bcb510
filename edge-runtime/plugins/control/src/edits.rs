//! What devices change in a container: the answer of a plugin, with the CDI devices that it names resolved.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Changes of a container. The daemon keeps them as JSON with the allocation, checked by [`are_edits`]: code that reads each
/// type is several times as large.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edits {
    /// Environment variables. No name comes twice.
    pub env: Vec<Pair>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<DeviceNode>,
    /// Annotations of the container for the OCI runtime. No name comes twice.
    pub annotations: Vec<Pair>,
}

/// A name and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub name: String,
    pub value: String,
}

/// A file or folder of the node in the container. Both paths are absolute, and without `..`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    pub container: String,
    pub host: String,
    pub read_only: bool,
    /// Further options of CDI, such as `nosuid`, `nodev` or `rbind`. Without `ro` and `rw`.
    pub options: Vec<String>,
}

/// A device node in the container. Both paths are absolute, and without `..`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    pub container: String,
    /// The node whose type and number it has, unless `number` gives them.
    pub host: String,
    /// Some of `r`, `w`, `m`; each at most once.
    pub permissions: String,
    pub number: Option<Number>,
    /// Of the file in the container. `None`: as on the node.
    pub mode: Option<u32>,
    /// Owner of the file in the container.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// Type and number of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Number {
    /// A block device; otherwise one of characters.
    pub block: bool,
    pub major: u32,
    pub minor: u32,
}

/// Whether this is [`Edits`] as JSON: all fields are there and of their types. Others are ignored.
pub fn are_edits(edits: &Value) -> bool {
    edits.is_object()
        && is_list(&edits["env"], is_pair)
        && is_list(&edits["mounts"], is_mount)
        && is_list(&edits["devices"], is_device_node)
        && is_list(&edits["annotations"], is_pair)
}

fn is_list(list: &Value, is: fn(&Value) -> bool) -> bool {
    list.as_array().is_some_and(|list| list.iter().all(is))
}

fn are_texts(of: &Value, fields: &[&str]) -> bool {
    fields.iter().all(|field| of[*field].is_string())
}

fn are_numbers(of: &Value, fields: &[&str]) -> bool {
    fields.iter().all(|field| of[*field].as_u64().is_some_and(|number| u32::try_from(number).is_ok()))
}

fn is_pair(pair: &Value) -> bool {
    are_texts(pair, &["name", "value"])
}

fn is_mount(mount: &Value) -> bool {
    are_texts(mount, &["container", "host"])
        && mount["readOnly"].is_boolean()
        && is_list(&mount["options"], Value::is_string)
}

fn is_device_node(node: &Value) -> bool {
    let number = &node["number"];
    are_texts(node, &["container", "host", "permissions"])
        && ["mode", "uid", "gid"].iter().all(|field| node[*field].is_null() || are_numbers(node, &[*field]))
        && (number.is_null() || number["block"].is_boolean() && are_numbers(number, &["major", "minor"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Every value in it, by its path.
    fn paths(value: &Value, path: &str, all: &mut Vec<String>) {
        all.push(path.to_owned());
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, field)| paths(field, &format!("{path}/{name}"), all))
            }
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(at, one)| paths(one, &format!("{path}/{at}"), all));
            }
            _ => {}
        }
    }

    #[test]
    fn check_equals_the_derived_code() {
        let whole = json!({
            "env": [{"name": "A", "value": "1"}],
            "mounts": [{"container": "/c", "host": "/h", "readOnly": true, "options": ["nodev"]}],
            "devices": [{"container": "/dev/x", "host": "/dev/y", "permissions": "rw",
                "number": {"block": false, "major": 1, "minor": 3}, "mode": 384, "uid": 7, "gid": null}],
            "annotations": [{"name": "a", "value": "b"}],
        });
        let is_right = |edits: &Value| {
            let derived = Edits::deserialize(edits).is_ok();
            assert_eq!(are_edits(edits), derived, "{edits}");
            derived
        };
        assert!(is_right(&whole) && is_right(&serde_json::to_value(Edits::default()).expect("JSON")));
        let mut all = Vec::new();
        paths(&whole, "", &mut all);
        let (mut right, mut wrong) = (0, 0);
        for path in &all {
            let others = [json!(null), json!(true), json!(7), json!(-1), json!(1_u64 << 32), json!(0.5), json!("x")];
            for other in others.into_iter().chain([json!([]), json!({}), json!(["x"]), json!([7]), json!([{}])]) {
                // An array stands for a struct in serde's derive: no helper writes one.
                if other.is_array() && whole.pointer(path).is_some_and(Value::is_object) {
                    continue;
                }
                let mut edits = whole.clone();
                *edits.pointer_mut(path).expect("a value") = other;
                if is_right(&edits) { right += 1 } else { wrong += 1 }
            }
            let Some((above, name)) = path.rsplit_once('/') else { continue };
            let mut edits = whole.clone();
            if let Some(fields) = edits.pointer_mut(above).and_then(Value::as_object_mut) {
                fields.remove(name);
                if is_right(&edits) { right += 1 } else { wrong += 1 }
            }
        }
        assert!(right > 20 && wrong > 200, "{right} {wrong}");
    }
}
