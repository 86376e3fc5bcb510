//! The MQTT topics of devices, as KubeEdge names them. Knows no payload.

use sampan_devices_control::Named;

/// Subscribed topics. Answers have one level more, so that own messages do not match.
pub const FILTERS: [&str; 4] = [
    "$hw/events/device/+/+/twin/update",
    "$hw/events/device/+/+/twin/get",
    "$hw/events/device/+/+/state/update",
    "$hw/events/node/+/membership/get",
];

/// Topics that only the node may publish.
pub const SAID: [&str; 5] = [
    "$hw/events/device/+/+/twin/update/+",
    "$hw/events/device/+/+/twin/get/result",
    "$hw/events/device/+/+/state/update/result",
    "$hw/events/node/+/membership/get/result",
    "$hw/events/node/+/membership/updated",
];

/// Longest topic that is looked at, in bytes.
const LONGEST: usize = 1_024;

/// The topics that this program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    TwinUpdate(Named),
    TwinGet(Named),
    StateUpdate(Named),
    MembershipGet,
}

/// Parses a topic by its levels alone: a namespace may have any name.
pub(super) fn parse(topic: &str) -> Option<Topic> {
    // Answers go to a topic made of this one, and these characters are not allowed there.
    if topic.len() > LONGEST || topic.contains(['+', '#', '\0']) {
        return None;
    }
    let mut levels = topic.strip_prefix("$hw/events/")?.split('/');
    let kind = levels.next()?;
    let levels: Vec<&str> = levels.collect();
    match (kind, levels.as_slice()) {
        ("device", [namespace, name, rest @ ..]) => {
            let id = Named { namespace: (*namespace).into(), name: (*name).into() };
            match rest {
                ["twin", "update"] => Some(Topic::TwinUpdate(id)),
                ["twin", "get"] => Some(Topic::TwinGet(id)),
                ["state", "update"] => Some(Topic::StateUpdate(id)),
                _ => None,
            }
        }
        ("node", [_, "membership", "get"]) => Some(Topic::MembershipGet),
        _ => None,
    }
}

/// Topic of a device.
pub(super) fn device(Named { namespace, name }: &Named, what: &str) -> String {
    format!("$hw/events/device/{namespace}/{name}/{what}")
}

/// Topic of the node.
pub(super) fn node(node: &str, what: &str) -> String {
    format!("$hw/events/node/{node}/membership/{what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_namespace_is_found() {
        for namespace in ["default", "dev", "device", "d", "e", "hw", "$hw", "events", "twin", "update", "ä b"] {
            let id = Named { namespace: namespace.into(), name: "get".into() };
            assert_eq!(parse(&device(&id, "twin/update")), Some(Topic::TwinUpdate(id.clone())));
            assert_eq!(parse(&device(&id, "twin/get")), Some(Topic::TwinGet(id.clone())));
            assert_eq!(parse(&device(&id, "state/update")), Some(Topic::StateUpdate(id)));
        }
        assert_eq!(parse("$hw/events/node/any/membership/get"), Some(Topic::MembershipGet));
    }

    #[test]
    fn other_topics_are_ignored() {
        let id = Named { namespace: "a".into(), name: "b".into() };
        for topic in [
            "",
            "$hw/events/",
            "$hw/events/device",
            "$hw/events/device/a/b",
            "$hw/events/device/a/b/twin/cloud_updated",
            "$hw/events/device/a/+/twin/update",
            "$hw/events/node/n/membership/get/result",
            "x/$hw/events/device/a/b/twin/update",
            &device(&id, "twin/update/result"),
            &device(&id, &"x".repeat(2_000)),
        ] {
            assert_eq!(parse(topic), None, "{topic}");
        }
    }
}
