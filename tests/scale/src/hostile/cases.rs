//! Messages of a hostile node: every message of an honest one, with each wrong value at each position. Pure.

use edge_protocol::message::{
    ApiRequest, Der, DeviceReport, DeviceState, ObjectDigest, ObjectKey, ObjectRef, Position, Report, ToCloud,
    TokenRequest, TwinReport, TwinValue,
};
use edge_protocol::stream::EDGE_STREAMS;
use edge_protocol::version::{self, Hello};
use serde_json::{Value, json};

/// Position in a message.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Field(String),
    Item(usize),
}

/// xorshift: reproducible by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or_default() % end.max(1)
    }

    /// A random element.
    pub(crate) fn one(&mut self, of: &[&str]) -> String {
        of[self.below(of.len())].to_owned()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

pub(crate) fn hello(node: &str) -> ToCloud {
    ToCloud::Hello(Hello {
        protocol: version::SUPPORTED,
        features: version::features(true, version::Wants::ALL).map(str::to_owned).collect(),
        node: node.to_owned(),
        cluster: None,
        boot_id: "boot".to_owned(),
        agent: "hostile".to_owned(),
        position: None,
        interests: Vec::new(),
    })
}

/// One of each message, and of each report, as an honest node sends it. `node` is the object that it reports of itself;
/// `pod` is bound to it.
pub(crate) fn honest(name: &str, node: &Value, pod: &ObjectRef) -> Vec<Value> {
    let ObjectKey { namespace, name: pod_name, .. } = pod.key.clone();
    let uid = pod.uid.clone();
    let event = json!({
        "metadata": {"name": format!("{pod_name}.17"), "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod_name, "uid": uid},
        "reason": "Pulled", "message": "image is here", "type": "Normal", "count": 1,
        "source": {"component": "kubelet", "host": name},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    });
    let mirror = json!({
        "metadata": {"name": format!("static-{name}"), "namespace": namespace, "labels": {"app": "hostile"},
            "annotations": {"kubernetes.io/config.hash": "h", "kubernetes.io/config.source": "file"}},
        "spec": {"nodeName": name, "containers": [{"name": "c", "image": "busybox", "env": [{"name": "A", "value": "b"}]}],
            "tolerations": [{"operator": "Exists"}]},
    });
    let status = crate::node::running(&json!({"spec": {"containers": [{"name": "c", "image": "busybox"}]}}));
    let digest = ObjectDigest { key: pod.key.clone(), uid: uid.clone(), digest: "d".to_owned() };
    let token = TokenRequest {
        namespace: namespace.clone(),
        pod: pod_name.clone(),
        uid: uid.clone(),
        audience: String::new(),
        expiration_seconds: 3600,
    };
    let asked = ApiRequest {
        method: "POST".to_owned(),
        path: format!("/api/v1/namespaces/{namespace}/configmaps?limit=1"),
        headers: vec![("authorization".to_owned(), "Bearer a.b.c".to_owned())],
        has_body: true,
    };
    let value = |value: &str| Some(TwinValue { value: value.to_owned(), at_ms: 7, ..TwinValue::default() });
    let device = DeviceReport {
        namespace: namespace.clone(),
        name: "thermometer".to_owned(),
        uid: "d".to_owned(),
        seq: 1,
        state: Some(DeviceState {
            state: "online".to_owned(),
            last_online: "2026-01-01T00:00:00Z".to_owned(),
            at_ms: 7,
            kept: true,
        }),
        twins: vec![TwinReport { property: "temp".to_owned(), reported: value("21"), observed: value("22") }],
    };
    let up = |report| ToCloud::Up { id: 1, report };
    let mut resumed = hello(name);
    if let ToCloud::Hello(hello) = &mut resumed {
        hello.cluster = Some("c".to_owned());
        hello.position = Some(Position { stream: "s".to_owned(), seq: 7 });
    }
    let messages = [
        hello(name),
        resumed,
        ToCloud::Ack { seq: 1 },
        ToCloud::Nack { object: pod.clone(), reason: "cannot".to_owned() },
        ToCloud::Need { keys: vec![pod.key.clone()], done: true },
        ToCloud::Unlisted { objects: vec![digest] },
        up(Report::Node { node: node.clone() }),
        up(Report::PodStatus { namespace: namespace.clone(), name: pod_name.clone(), uid: uid.clone(), status }),
        up(Report::PodGone { namespace: namespace.clone(), name: pod_name, uid: "another".to_owned() }),
        up(Report::Event { event }),
        up(Report::MirrorPod { pod: mirror }),
        up(Report::MirrorGone { namespace, name: format!("static-{name}"), static_uid: "h".to_owned() }),
        up(Report::CsiNode {
            drivers: json!([{"name": "hostpath.csi.k8s.io", "nodeID": name, "allocatable": {"count": 8},
                "topologyKeys": ["topology.hostpath.csi/node"], "labels": {"topology.hostpath.csi/node": name}}]),
        }),
        ToCloud::StreamData { stream: 1, data: b"bytes".to_vec() },
        ToCloud::StreamCredit { stream: 1, bytes: 9 },
        ToCloud::StreamEnd { stream: 1, error: Some("why".to_owned()) },
        ToCloud::ApiOpen { stream: EDGE_STREAMS | 1, request: asked, credit: 1 << 16 },
        ToCloud::TokenRequest { id: 1, request: token },
        ToCloud::Renew { csr: Der(vec![48, 3, 2, 1, 0]) },
        ToCloud::Ping { rtt_ms: Some(7) },
        ToCloud::Interests { namespaces: vec!["shop".to_owned()] },
        ToCloud::Devices { batch: 1, devices: vec![(&device).into()] },
        ToCloud::Message {
            id: 1,
            left_ms: 60_000,
            message: json!({"rule": "r", "key": "k", "topic": "ns/t", "payload": "eA==", "atMs": 7}),
        },
        ToCloud::Request { id: 1, request: json!({"rule": "x", "body": "e30="}) },
        ToCloud::Answer { id: 1, answer: json!({"http": {"status": 200, "headers": [["a", "b"]], "body": "eA=="}}) },
        ToCloud::Unsupported { message: "later".to_owned() },
        ToCloud::Part { more: false, data: "{\"ping\":{}}".to_owned() },
    ];
    messages.iter().filter_map(|message| serde_json::to_value(message).ok()).collect()
}

/// Wrong values: each type, huge and deep ones, and texts with a meaning in a path or a log.
pub(crate) fn odd() -> Vec<Value> {
    let deep = |levels: usize| {
        (0..levels).fold(json!(0), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({"": inner}) })
    };
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5e300),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("x"),
        json!("../../x?y#z"),
        json!("a\nnode admin: connected\u{1b}[2J\u{0}"),
        json!("y".repeat(300_000)),
        json!([]),
        json!({}),
        json!([[], {}, null, 1, "x"]),
        json!({"": 0, "metadata": [], "spec": 1, "status": "x"}),
        json!(vec![json!({"type": "x", "name": "n"}); 3000]),
        json!(vec![json!({"": 0}); 9000]),
        (0..3000).map(|number| (number.to_string(), json!([]))).collect::<serde_json::Map<_, _>>().into(),
        deep(20),
        deep(100),
    ]
}

/// All positions in a message, without the message itself.
pub(crate) fn paths(message: &Value) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    let mut open = vec![(Vec::new(), message)];
    while let Some((path, value)) = open.pop() {
        let mut below = |step: Step, value| {
            let path: Vec<Step> = path.iter().cloned().chain([step]).collect();
            all.push(path.clone());
            open.push((path, value));
        };
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| below(Step::Field(name.clone()), value)),
            Value::Array(items) => items.iter().enumerate().for_each(|(at, value)| below(Step::Item(at), value)),
            _ => {}
        }
    }
    all
}

/// The message with another value at that position.
pub(crate) fn with(message: &Value, path: &[Step], odd: &Value) -> Value {
    let mut message = message.clone();
    let place = path.iter().try_fold(&mut message, |value, step| match step {
        Step::Field(name) => value.get_mut(name),
        Step::Item(at) => value.get_mut(at),
    });
    if let Some(place) = place {
        *place = odd.clone();
    }
    message
}

/// Frames that are not messages.
pub(crate) fn junk(random: &mut Random) -> Vec<u8> {
    match random.below(5) {
        0 => vec![6, 1],
        1 => (0..random.below(4000)).map(|_| u8::try_from(random.below(256)).unwrap_or_default()).collect(),
        2 => edge_protocol::compress::pack(&"[".repeat(1 << 20)).unwrap_or_default(),
        3 => {
            let bomb = format!(
                "{{\"up\":{{\"id\":1,\"report\":{{\"report\":\"node\",\"node\":[{}0]}}}}}}",
                "{\"\":0},".repeat(140_000)
            );
            edge_protocol::compress::pack(&bomb).unwrap_or_default()
        }
        _ => vec![7; 100],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_gets_everything() {
        let message = json!({"a": {"b": [1, {"c": 2}]}});
        assert_eq!(paths(&message).len(), 5);
        for path in paths(&message) {
            assert_eq!(with(&message, &path, &json!("odd")).to_string().matches("odd").count(), 1, "{path:?}");
        }
        let pod = ObjectKey { kind: "Pod".into(), namespace: "ns".into(), name: "p".into() };
        let names: std::collections::BTreeSet<String> =
            honest("n", &json!({}), &ObjectRef { key: pod, uid: "u".into() })
                .iter()
                .filter_map(|message| message.as_object()?.keys().next().cloned())
                .collect();
        let known = <ToCloud as edge_protocol::frame::Message>::NAMES;
        assert_eq!(names.len(), known.len(), "one of each: {names:?}");
    }
}
