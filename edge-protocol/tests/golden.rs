//! Protocol version 1, byte for byte: messages of old peers must still parse, and new messages must be what old peers
//! parse. A line of the fixture is never changed; a new message is a new line.

use edge_protocol::frame::{Decoded, Decoder, Message, encode};
use edge_protocol::message::{
    ApiRequest, Der, DeviceRefusal, DeviceReport, DeviceState, Object, ObjectDigest, ObjectKey, ObjectRef, Position,
    RenewAnswer, Report, StreamRequest, ToCloud, ToEdge, TokenAnswer, TokenRequest, TwinReport, TwinValue,
};
use edge_protocol::version::{Hello, IdentityTerms, ProtocolRange, RefuseReason, Welcome};
use serde_json::json;
use std::fmt::Debug;

const TO_EDGE: &str = include_str!("fixtures/to-edge.v1.jsonl");
const TO_CLOUD: &str = include_str!("fixtures/to-cloud.v1.jsonl");

fn key() -> ObjectKey {
    ObjectKey { kind: "Pod".into(), namespace: "default".into(), name: "web".into() }
}

fn digest() -> ObjectDigest {
    ObjectDigest { key: key(), uid: "u-1".into(), digest: "d-1".into() }
}

fn reference() -> ObjectRef {
    ObjectRef { key: key(), uid: "u-1".into() }
}

fn to_edge() -> Vec<ToEdge> {
    let node = ObjectKey { kind: "Node".into(), namespace: String::new(), name: "edge-1".into() };
    vec![
        ToEdge::Welcome(Welcome {
            protocol: 1,
            features: vec!["logs".into()],
            cluster: "c-1".into(),
            session: 7,
            stream: "s-1".into(),
            resume: true,
            heartbeat_ms: 15_000,
            identity: None,
            repeat_within_ms: None,
        }),
        ToEdge::Refuse { reason: RefuseReason::WrongCluster, message: "no".into() },
        ToEdge::SyncBegin { seq: 4, count: 2 },
        ToEdge::SyncDigests {
            objects: vec![digest(), ObjectDigest { key: node, uid: "u-2".into(), digest: "d-2".into() }],
        },
        ToEdge::SyncEnd { seq: 4, count: 2 },
        ToEdge::SyncDone { seq: 4 },
        ToEdge::Put { seq: 5, sync: false, object: Object { digest: digest(), body: json!({"spec": {"x": 1}}) } },
        ToEdge::Put { seq: 3, sync: true, object: Object { digest: digest(), body: json!(null) } },
        ToEdge::Delete { seq: 6, object: reference() },
        ToEdge::UpAck { ids: vec![1, 2] },
        ToEdge::UpRefuse { id: 3, reason: "unknown report".into() },
        ToEdge::StreamOpen {
            stream: 1,
            request: StreamRequest::Logs {
                namespace: "default".into(),
                pod: "web".into(),
                uid: "u-1".into(),
                container: "c".into(),
                follow: true,
                previous: false,
                timestamps: false,
                tail_lines: Some(10),
                since_seconds: None,
                since_time: None,
                limit_bytes: None,
            },
            credit: 65_536,
        },
        ToEdge::StreamOpen {
            stream: 2,
            request: StreamRequest::Exec {
                namespace: "default".into(),
                pod: "web".into(),
                uid: "u-1".into(),
                container: "c".into(),
                command: vec!["ls".into(), "-l".into()],
                stdin: true,
                stdout: true,
                stderr: false,
                tty: true,
            },
            credit: 65_536,
        },
        ToEdge::StreamOpen {
            stream: 3,
            request: StreamRequest::Attach {
                namespace: "default".into(),
                pod: "web".into(),
                uid: "u-1".into(),
                container: "c".into(),
                stdin: false,
                stdout: true,
                stderr: true,
                tty: false,
            },
            credit: 65_536,
        },
        ToEdge::StreamOpen {
            stream: 4,
            request: StreamRequest::PortForward {
                namespace: "default".into(),
                pod: "web".into(),
                uid: "u-1".into(),
                port: 8080,
            },
            credit: 65_536,
        },
        ToEdge::StreamOpen { stream: 5, request: StreamRequest::Stats {}, credit: 65_536 },
        ToEdge::StreamOpen {
            stream: 6,
            request: StreamRequest::DeleteVolume { volume: "pvc-1".into() },
            credit: 65_536,
        },
        ToEdge::StreamOpen {
            stream: 7,
            request: StreamRequest::Csi { driver: "d.example.com".into(), path: "/csi.v1.Identity/Probe".into() },
            credit: 65_536,
        },
        ToEdge::StreamData { stream: 1, data: vec![0, 255, 10] },
        ToEdge::StreamCredit { stream: 1, bytes: 32_768 },
        ToEdge::StreamEnd { stream: 1, error: None },
        ToEdge::StreamEnd { stream: 1, error: Some("gone".into()) },
        ToEdge::Token {
            id: 1,
            answer: TokenAnswer::Issued {
                token: "a.b.c".into(),
                issued: "2026-01-01T00:00:00Z".into(),
                expires: "2026-01-01T01:00:00Z".into(),
            },
        },
        ToEdge::Token { id: 2, answer: TokenAnswer::Refused { reason: "no such pod".into() } },
        ToEdge::Pong {},
        ToEdge::Unsupported { message: "dance".into() },
        ToEdge::Part { more: true, data: "{\"put".into() },
        ToEdge::Renewed {
            answer: RenewAnswer::Issued { certificate: Der(vec![1, 2]), authorities: vec![Der(vec![3]), Der(vec![4])] },
        },
        ToEdge::Renewed { answer: RenewAnswer::Refused { reason: "no".into() } },
        ToEdge::Welcome(Welcome {
            protocol: 1,
            features: vec!["renew".into()],
            cluster: "c-1".into(),
            session: 7,
            stream: "s-1".into(),
            resume: true,
            heartbeat_ms: 15_000,
            identity: Some(IdentityTerms { now_ms: 1_000, left_ms: 20, life_ms: 300 }),
            repeat_within_ms: None,
        }),
        ToEdge::Welcome(Welcome {
            protocol: 1,
            features: vec![],
            cluster: "c-1".into(),
            session: 8,
            stream: "s-2".into(),
            resume: false,
            heartbeat_ms: 15_000,
            identity: None,
            repeat_within_ms: Some(600_000),
        }),
        ToEdge::DevicesAck {
            batch: 3,
            refused: vec![DeviceRefusal { uid: "d-1".into(), reason: "property x is not in spec.properties".into() }],
        },
        ToEdge::DevicesAck { batch: 4, refused: vec![] },
        ToEdge::MessageAck { ids: vec![4, 5] },
        ToEdge::Call { id: 9, call: json!({"publish": {"topic": "led", "payload": "T04="}}) },
        ToEdge::Response { id: 6, response: json!({"http": {"status": 200, "headers": [], "body": "eA=="}}) },
    ]
}

fn to_cloud() -> Vec<ToCloud> {
    let report = |report| ToCloud::Up { id: 9, report };
    let (namespace, name, uid) = ("default".to_owned(), "web".to_owned(), "u-1".to_owned());
    vec![
        ToCloud::Hello(Hello {
            protocol: ProtocolRange { min: 1, max: 1 },
            features: vec!["logs".into()],
            node: "edge-1".into(),
            cluster: Some("c-1".into()),
            boot_id: "b-1".into(),
            agent: "edge-runtime 0.1.0".into(),
            position: Some(Position { stream: "s-1".into(), seq: 4 }),
            interests: vec![],
        }),
        ToCloud::Ack { seq: 5 },
        ToCloud::Nack { object: reference(), reason: "spec.x: not supported".into() },
        ToCloud::Need { keys: vec![key()], done: true },
        ToCloud::Unlisted { objects: vec![digest()] },
        report(Report::PodStatus {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            status: json!({"phase": "Running"}),
        }),
        report(Report::PodGone { namespace: namespace.clone(), name: name.clone(), uid }),
        report(Report::Node { node: json!({"kind": "Node"}) }),
        report(Report::Event { event: json!({"reason": "Started"}) }),
        report(Report::MirrorPod { pod: json!({}) }),
        report(Report::MirrorGone { namespace, name, static_uid: "f-1".into() }),
        report(Report::Order { job: "j-1".into(), status: json!({"phase": "Successful"}) }),
        ToCloud::StreamData { stream: 1, data: b"hello\n".to_vec() },
        ToCloud::StreamCredit { stream: 1, bytes: 1 },
        ToCloud::StreamEnd { stream: 1, error: Some("no such container".into()) },
        ToCloud::TokenRequest {
            id: 1,
            request: TokenRequest {
                namespace: "default".into(),
                pod: "web".into(),
                uid: "u-1".into(),
                audience: String::new(),
                expiration_seconds: 3607,
            },
        },
        ToCloud::TokenRequest {
            id: 2,
            request: TokenRequest {
                namespace: "default".into(),
                pod: "web".into(),
                uid: "u-1".into(),
                audience: "vault".into(),
                expiration_seconds: 600,
            },
        },
        ToCloud::Ping { rtt_ms: None },
        ToCloud::Unsupported { message: "dance".into() },
        ToCloud::Part { more: false, data: "\"}".into() },
        ToCloud::Renew { csr: Der(vec![9]) },
        ToCloud::Hello(Hello {
            protocol: ProtocolRange { min: 1, max: 1 },
            features: vec!["services1".into(), "interests1".into()],
            node: "edge-1".into(),
            cluster: None,
            boot_id: "b-1".into(),
            agent: "edge-runtime 0.1.0".into(),
            position: None,
            interests: vec!["shop".into()],
        }),
        ToCloud::Interests { namespaces: vec!["shop".into(), "crm".into()] },
        ToCloud::Devices {
            batch: 3,
            devices: vec![
                (&DeviceReport {
                    namespace: "default".into(),
                    name: "t1".into(),
                    uid: "d-1".into(),
                    seq: 41,
                    state: Some(DeviceState {
                        state: "online".into(),
                        last_online: "2026-01-01T00:00:00Z".into(),
                        at_ms: 9,
                        kept: true,
                    }),
                    twins: vec![TwinReport {
                        property: "temp".into(),
                        reported: Some(TwinValue {
                            value: "21.5".into(),
                            at_ms: 1_700_000_000_000,
                            kind: "float".into(),
                            unsynchronized: true,
                            kept: false,
                            kept_seq: 0,
                        }),
                        observed: Some(TwinValue {
                            value: "ON".into(),
                            at_ms: 5,
                            kept: true,
                            kept_seq: 40,
                            ..TwinValue::default()
                        }),
                    }],
                })
                    .into(),
                (&DeviceReport {
                    namespace: "default".into(),
                    name: "t2".into(),
                    uid: "d-2".into(),
                    ..DeviceReport::default()
                })
                    .into(),
            ],
        },
        ToCloud::Message {
            id: 12,
            left_ms: 60_000,
            message: json!({"rule": "r-1", "key": "k-1", "topic": "default/temp", "payload": "MjE=", "atMs": 5}),
        },
        ToCloud::Answer { id: 9, answer: json!({"published": {}}) },
        ToCloud::Request { id: 6, request: json!({"rule": "r-1", "body": "e30="}) },
        ToCloud::ApiOpen {
            stream: (1 << 62) + 1,
            request: ApiRequest {
                method: "PATCH".into(),
                path: "/api/v1/namespaces/default/pods/web?pretty=true".into(),
                headers: vec![("authorization".into(), "Bearer a.b.c".into()), ("accept".into(), "*/*".into())],
                has_body: true,
            },
            credit: 65_536,
        },
        report(Report::CsiNode {
            drivers: json!([{"name": "hostpath.csi.k8s.io", "nodeID": "edge-1", "allocatable": {"count": 8}}]),
        }),
    ]
}

/// Which variants the messages have; the compiler asks for the new ones.
macro_rules! variants {
    ($messages:expr, $pattern:pat => $value:expr, $enum:ident { $($variant:ident),* }) => {{
        let name = |value: &$enum| match value { $($enum::$variant { .. } => stringify!($variant)),* };
        let found: Vec<&str> =
            $messages.iter().filter_map(|message| if let $pattern = message { Some(name($value)) } else { None }).collect();
        for variant in [$(stringify!($variant)),*].into_iter().filter(|variant| *variant != "Unknown") {
            assert!(found.contains(&variant), "no golden frame with {}::{variant}", stringify!($enum));
        }
    }};
}

#[test]
fn g21_every_variant_inside_a_message_has_a_golden_frame() {
    let (down, up) = (to_edge(), to_cloud());
    variants!(down, ToEdge::StreamOpen { request, .. } => request,
        StreamRequest { Logs, Exec, Attach, PortForward, Stats, DeleteVolume, Csi, Unknown });
    variants!(down, ToEdge::Token { answer, .. } => answer, TokenAnswer { Issued, Refused, Unknown });
    variants!(down, ToEdge::Renewed { answer } => answer, RenewAnswer { Issued, Refused, Unknown });
    variants!(up, ToCloud::Up { report, .. } => report,
        Report { PodStatus, PodGone, Node, Event, MirrorPod, MirrorGone, Order, CsiNode, Unknown });
}

fn check<T: Message + PartialEq + Debug + Clone>(messages: &[T], fixture: &str) {
    let lines: Vec<_> = fixture.lines().collect();
    let written: Vec<_> = messages.iter().map(encode).collect();
    assert_eq!(written, lines, "what is sent today differs from version 1");
    for (message, line) in messages.iter().zip(&lines) {
        match (message.clone().into_part(), Decoder::default().decode::<T>(line)) {
            (Ok((true, _)), Ok(Decoded::Incomplete)) | (Ok((false, _)), Err(_)) => {}
            (Err(whole), read) => assert_eq!(read, Ok(Decoded::Message(whole)), "{line}"),
            (part, read) => panic!("{part:?} was read as {read:?}"),
        }
    }
    for name in T::NAMES {
        assert!(lines.iter().any(|l| l.starts_with(&format!("{{\"{name}\":"))), "no golden frame of {name}");
    }
}

#[test]
fn g21_version_1_to_the_edge() {
    check(&to_edge(), TO_EDGE);
}

#[test]
fn g21_version_1_to_the_cloud() {
    check(&to_cloud(), TO_CLOUD);
}

/// A newer peer adds fields and variants; an older one leaves optional fields out.
#[test]
fn g21_skew_of_one_version_reads() {
    let read = |text: &str| Decoder::default().decode::<ToCloud>(text);
    let hello = r#"{"hello":{"protocol":{"min":1,"max":2,"x":0},"node":"n","bootId":"b","colour":"red"}}"#;
    assert!(matches!(read(hello), Ok(Decoded::Message(ToCloud::Hello(h))) if h.position.is_none()));
    let dance = r#"{"up":{"id":1,"report":{"report":"dance","steps":[1]}}}"#;
    assert_eq!(read(dance), Ok(Decoded::Message(ToCloud::Up { id: 1, report: Report::Unknown })));
    assert_eq!(read(r#"{"dance":{"steps":3}}"#), Ok(Decoded::Unknown("dance".into())));
    let open = r#"{"streamOpen":{"stream":1,"request":{"request":"dance","tty":true},"credit":1}}"#;
    let wanted = ToEdge::StreamOpen { stream: 1, request: StreamRequest::Unknown, credit: 1 };
    assert_eq!(Decoder::default().decode::<ToEdge>(open), Ok(Decoded::Message(wanted)));
}
