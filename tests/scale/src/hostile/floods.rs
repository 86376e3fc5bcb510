//! Floods: valid messages in numbers and sizes that no honest node sends. Pure; `flood` sends them.

use edge_protocol::message::{
    Der, DeviceReport, ObjectDigest, ObjectKey, ObjectRef, Report, ToCloud, TokenRequest, TwinReport, TwinValue,
};
use serde_json::{Value, json};

use crate::cases::Random;

/// Behaviour of a hostile node on an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Flood {
    PodStatuses,
    NodeStatuses,
    GiantNodes,
    UnknownPods,
    Events,
    MirrorPods,
    GiantMirrorPods,
    CsiDrivers,
    Tokens,
    Renewals,
    Interests,
    Devices,
    RuleMessages,
    RuleRequests,
    /// Numbers and keys of changes that were never sent.
    WrongNumbers,
    /// The whole state, repeatedly.
    Resyncs,
    Pings,
    /// Slices of a message that never ends.
    Parts,
    /// Frames that are much larger when decompressed.
    Bombs,
    /// Answers to requests of the bridge, of any length.
    Answers,
    /// Connects, says hello, and disconnects.
    Reconnects,
    /// Many connections that say hello and never read.
    SlowReaders,
}

/// The hostile node, its own object, and a pod bound to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) name: &'a str,
    pub(crate) node: &'a Value,
    pub(crate) pod: &'a ObjectRef,
}

/// The messages of this turn, counted from 1, which is also the number to acknowledge.
pub(crate) fn said(flood: Flood, ground: Ground<'_>, turn: u64, random: &mut Random) -> Vec<ToCloud> {
    let Ground { name, pod, .. } = ground;
    let up = |report| vec![ToCloud::Up { id: turn, report }];
    let (namespace, pod_name, uid) = (pod.key.namespace.clone(), pod.key.name.clone(), pod.uid.clone());
    let key = |name: String| ObjectKey { kind: "Pod".to_owned(), namespace: "default".to_owned(), name };
    match flood {
        Flood::PodStatuses => up(Report::PodStatus { namespace, name: pod_name, uid, status: status(turn) }),
        Flood::UnknownPods if turn.is_multiple_of(2) => {
            up(Report::PodGone { namespace, name: format!("none-{turn}"), uid: format!("u{turn}") })
        }
        Flood::UnknownPods => up(Report::PodStatus {
            namespace: random.one(&["default", "kube-system", "honest", "none"]),
            name: format!("none-{}", random.below(10_000)),
            uid: format!("u{turn}"),
            status: status(turn),
        }),
        Flood::NodeStatuses => up(Report::Node { node: node(ground.node, turn, 1, random) }),
        Flood::GiantNodes => up(Report::Node { node: node(ground.node, turn, 2_000, random) }),
        Flood::Events => up(Report::Event { event: event(name, pod, turn, random) }),
        Flood::MirrorPods if turn.is_multiple_of(3) => up(Report::MirrorGone {
            namespace: "default".to_owned(),
            name: format!("static-{}-{name}", random.below(2_000)),
            static_uid: "h".to_owned(),
        }),
        Flood::MirrorPods => up(Report::MirrorPod { pod: mirror(name, 1, random) }),
        Flood::GiantMirrorPods => up(Report::MirrorPod { pod: mirror(name, 3_000, random) }),
        Flood::CsiDrivers => up(Report::CsiNode { drivers: drivers(turn, random) }),
        Flood::Tokens => vec![ToCloud::TokenRequest {
            id: turn,
            request: TokenRequest {
                namespace,
                pod: pod_name,
                uid,
                audience: String::new(),
                expiration_seconds: 600 + i64::try_from(random.below(100_000)).unwrap_or_default(),
            },
        }],
        Flood::Renewals => vec![ToCloud::Renew { csr: Der(vec![48; 1 + random.below(4_000)]) }],
        Flood::Interests => {
            vec![ToCloud::Interests { namespaces: (0..64).map(|at| format!("ns-{turn}-{at}")).collect() }]
        }
        Flood::Devices => vec![ToCloud::Devices { batch: turn, devices: devices(turn) }],
        Flood::RuleMessages => vec![ToCloud::Message {
            id: turn,
            left_ms: 60_000,
            message: json!({"rule": "r", "key": turn.to_string(), "topic": format!("ns/{turn}"), "payload": "eA==", "atMs": 7}),
        }],
        Flood::RuleRequests => {
            vec![ToCloud::Request { id: turn, request: json!({"rule": format!("ns/{turn}"), "body": "e30="}) }]
        }
        Flood::WrongNumbers => vec![
            ToCloud::Ack { seq: u64::MAX - turn },
            ToCloud::Nack { object: pod.clone(), reason: "r".repeat(10_000) },
            ToCloud::StreamCredit { stream: turn, bytes: u64::MAX },
            ToCloud::StreamEnd { stream: turn, error: Some("e".repeat(10_000)) },
            ToCloud::Unlisted {
                objects: (0..200)
                    .map(|at| ObjectDigest {
                        key: key(format!("x{at}")),
                        uid: format!("{turn}"),
                        digest: "d".to_owned(),
                    })
                    .collect(),
            },
        ],
        Flood::Resyncs => vec![ToCloud::Need { keys: (0..200).map(|at| key(format!("x{at}"))).collect(), done: false }],
        Flood::Pings => (0..50).map(|rtt| ToCloud::Ping { rtt_ms: Some(rtt) }).collect(),
        Flood::Parts => vec![ToCloud::Part { more: true, data: "[".repeat(60 << 10) }],
        Flood::Bombs | Flood::Answers | Flood::Reconnects | Flood::SlowReaders => Vec::new(),
    }
}

/// Differs in every turn, so that each is a change.
fn status(turn: u64) -> Value {
    let mut status = crate::node::running(&json!({"spec": {"containers": [{"name": "c", "image": "busybox"}]}}));
    status["message"] = json!(format!("{turn} {}", "m".repeat(2_000)));
    status["containerStatuses"][0]["restartCount"] = json!(turn % 1_000_000);
    status
}

fn node(honest: &Value, turn: u64, times: usize, random: &mut Random) -> Value {
    let mut node = honest.clone();
    let images: Vec<Value> =
        (0..times.min(50)).map(|at| json!({"names": [format!("i{at}:{turn}")], "sizeBytes": 1})).collect();
    node["status"]["images"] = images.into();
    for at in 0..times {
        node["metadata"]["labels"][format!("x.example/l{at}")] = json!(format!("v{turn}"));
        node["metadata"]["annotations"][format!("x.example/a{at}")] = json!("a".repeat(100));
    }
    node["status"]["allocatable"]["memory"] = json!(format!("{}Ki", 1_000 + random.below(1_000_000)));
    node
}

fn event(name: &str, pod: &ObjectRef, turn: u64, random: &mut Random) -> Value {
    let (about, uid) = match random.below(2) {
        0 => (pod.key.name.clone(), pod.uid.clone()),
        _ => (format!("none-{turn}"), String::new()),
    };
    json!({
        "metadata": {"name": format!("e.{turn:x}.{}", random.below(1 << 30)), "namespace": pod.key.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.key.namespace, "name": about, "uid": uid},
        "reason": format!("Flood{}", turn % 50), "message": "m".repeat(1_000), "type": "Warning", "count": turn,
        "source": {"component": "kubelet", "host": name},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    })
}

fn mirror(name: &str, variables: usize, random: &mut Random) -> Value {
    let env: Vec<Value> = (0..variables).map(|at| json!({"name": format!("V{at}"), "value": "v".repeat(50)})).collect();
    json!({
        "metadata": {"name": format!("static-{}-{name}", random.below(2_000)),
            "namespace": random.one(&["default", "kube-system", "honest"]),
            "labels": {"app": "hostile", "n": random.below(1_000).to_string()},
            "annotations": {"kubernetes.io/config.hash": "h", "kubernetes.io/config.source": "file"}},
        "spec": {"nodeName": name, "containers": [{"name": "c", "image": "busybox", "env": env}],
            "tolerations": [{"operator": "Exists"}]},
    })
}

/// Valid ones, and one that no Node may have.
fn drivers(turn: u64, random: &mut Random) -> Value {
    let driver = |at: u64| {
        let name = format!("d{at}.x.example");
        let label = format!("{name}/t{turn}-{}", at % 3);
        json!({"name": name, "nodeID": format!("{turn}"), "labels": {label: "x"}, "allocatable": {"count": turn % 99}})
    };
    let mut drivers: Vec<Value> = (0..random.below(31)).zip(0..).map(|(_, at)| driver(at)).collect();
    drivers.push(json!({"name": "e.x.example", "nodeID": format!("{turn}"),
        "labels": {"node-restriction.kubernetes.io/zone": "vault"}}));
    drivers.into()
}

fn devices(turn: u64) -> Vec<Value> {
    let value = Some(TwinValue { value: "v".repeat(200), at_ms: turn, ..TwinValue::default() });
    let report = |at: u64| DeviceReport {
        namespace: "default".to_owned(),
        name: format!("d{at}"),
        uid: "d".to_owned(),
        seq: turn,
        state: None,
        twins: vec![TwinReport { property: "p".to_owned(), reported: value.clone(), observed: value.clone() }],
    };
    (0..200).map(|at| (&report(at)).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_flood_changes_with_its_turns() {
        let pod = ObjectRef {
            key: ObjectKey { kind: "Pod".into(), namespace: "ns".into(), name: "p".into() },
            uid: "u".into(),
        };
        let node = crate::node::object("n");
        let ground = Ground { name: "n", node: &node, pod: &pod };
        for flood in Flood::value_variants() {
            let mut random = Random::new(1);
            let texts = [1, 2].map(|turn| format!("{:?}", said(*flood, ground, turn, &mut random)));
            let same = matches!(
                flood,
                Flood::Resyncs
                    | Flood::Pings
                    | Flood::Parts
                    | Flood::Bombs
                    | Flood::Answers
                    | Flood::Reconnects
                    | Flood::SlowReaders
            );
            assert_eq!(texts[0] == texts[1], same, "{flood:?}");
        }
    }
}
