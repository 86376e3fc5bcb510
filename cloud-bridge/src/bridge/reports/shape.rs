//! Checks the shape of a report, whatever its content. The work of an API server on a list grows faster than the list,
//! and so does the bridge's: a report with larger parts than an honest node sends is refused. Pure.

use edge_protocol::message::{MAX_CSI_DRIVERS, Report};
use serde_json::Value;

/// Maximum number of items of a list, or fields of an object. The images of a node are the longest list: a kubelet
/// reports 50.
const MOST_ITEMS: usize = 1024;
/// Maximum number of conditions or addresses, which are merged by their types.
const MOST_CONDITIONS: usize = 64;
/// Maximum length of a field's name, in bytes (a label's has at most 317).
const LONGEST_NAME: usize = 512;
/// Maximum depth; a pod has about twelve levels.
const DEEPEST: usize = 32;

/// Maximum length of all CSI drivers of a node as text, in bytes.
const LONGEST_DRIVERS: usize = 64 << 10;

/// Lists whose items are objects.
const OF_OBJECTS: [&str; 9] = [
    "conditions",
    "addresses",
    "images",
    "runtimeHandlers",
    "podIPs",
    "hostIPs",
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
];

/// # Errors
/// The part that no honest node sends, in words for its log.
pub(super) fn check(report: &Report) -> Result<(), String> {
    match report {
        Report::PodStatus { status, .. } => of_status(status),
        Report::Node { node } => {
            bounded("node", node, 0)?;
            of_status(&node["status"])
        }
        Report::Event { event } => bounded("event", event, 0),
        Report::MirrorPod { pod } => bounded("pod", pod, 0),
        Report::CsiNode { drivers } => of_drivers(drivers),
        Report::PodGone { .. } | Report::MirrorGone { .. } | Report::Order { .. } | Report::Unknown => Ok(()),
    }
}

fn of_drivers(drivers: &Value) -> Result<(), String> {
    bounded("drivers", drivers, 0)?;
    match drivers.as_array() {
        Some(all) if all.len() > MAX_CSI_DRIVERS => Err(too_many("drivers", all.len())),
        Some(all) if all.iter().all(Value::is_object) => match drivers.to_string().len() {
            length if length > LONGEST_DRIVERS => Err(format!("drivers of {length} bytes")),
            _ => Ok(()),
        },
        _ => Err("drivers is not a list of objects".to_owned()),
    }
}

fn of_status(status: &Value) -> Result<(), String> {
    bounded("status", status, 0)?;
    for name in OF_OBJECTS {
        let list = &status[name];
        let most = if matches!(name, "conditions" | "addresses") { MOST_CONDITIONS } else { MOST_ITEMS };
        match list.as_array() {
            Some(items) if items.len() > most => return Err(too_many(name, items.len())),
            Some(items) if items.iter().all(Value::is_object) => {}
            None if list.is_null() => {}
            _ => return Err(format!("{name} is no list of objects")),
        }
    }
    Ok(())
}

/// Recursion ends at [`DEEPEST`].
fn bounded(name: &str, value: &Value, depth: usize) -> Result<(), String> {
    if depth > DEEPEST {
        return Err(format!("nested deeper than {DEEPEST}"));
    }
    match value {
        Value::Array(items) if items.len() > MOST_ITEMS => Err(too_many(name, items.len())),
        Value::Array(items) => items.iter().try_for_each(|item| bounded(name, item, depth + 1)),
        Value::Object(fields) if fields.len() > MOST_ITEMS => Err(too_many(name, fields.len())),
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            if name.len() > LONGEST_NAME {
                return Err(format!("a field whose name has {} bytes", name.len()));
            }
            bounded(name, value, depth + 1)
        }),
        _ => Ok(()),
    }
}

fn too_many(name: &str, count: usize) -> String {
    format!("{name} has {count} items")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(status: Value) -> Result<(), String> {
        check(&Report::PodStatus { namespace: "ns".into(), name: "p".into(), uid: "u".into(), status })
    }

    #[test]
    fn g17_lists_that_no_node_has_are_refused() {
        let many = |count: usize| vec![json!({"type": "x"}); count];
        assert_eq!(status(json!({"conditions": many(64), "containerStatuses": many(1024), "podIPs": null})), Ok(()));
        for long in [
            json!({"conditions": many(65)}),
            json!({"containerStatuses": many(1025)}),
            json!({"conditions": [{"a": many(1025)}]}),
            json!({"anything": [[many(1025)]]}),
        ] {
            let refused = status(long);
            assert!(refused.as_ref().is_err_and(|why| why.contains("items")), "{refused:?}");
        }
        let wide: serde_json::Map<String, Value> = (0..1025).map(|n| (n.to_string(), Value::Null)).collect();
        assert!(check(&Report::Event { event: wide.clone().into() }).is_err());
        assert!(check(&Report::Node { node: json!({"metadata": {"labels": wide}}) }).is_err());
        assert!(check(&Report::MirrorPod { pod: json!({"spec": {"containers": many(1025)}}) }).is_err());
        assert!(status(json!({"x".repeat(513): 1})).is_err());
    }

    #[test]
    fn lists_of_objects_hold_objects() {
        for odd in [json!(["x"]), json!([[]]), json!([null]), json!({}), json!("x"), json!(1)] {
            assert!(status(json!({"conditions": odd})).is_err(), "{odd}");
            assert!(check(&Report::Node { node: json!({"status": {"addresses": odd}}) }).is_err(), "{odd}");
        }
    }

    #[test]
    fn drivers_are_few_and_short() {
        let drivers = |drivers: Value| check(&Report::CsiNode { drivers });
        assert_eq!(drivers(json!([])), Ok(()));
        assert_eq!(drivers(vec![json!({"name": "d"}); MAX_CSI_DRIVERS].into()), Ok(()));
        for odd in [
            vec![json!({"name": "d"}); MAX_CSI_DRIVERS + 1].into(),
            json!([{"name": "d".repeat(LONGEST_DRIVERS)}]),
            json!(["d"]),
            json!({"name": "d"}),
            Value::Null,
        ] {
            assert!(drivers(odd).is_err());
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(status(deep(32)).is_ok());
        assert!(status(deep(33)).is_err());
    }
}
