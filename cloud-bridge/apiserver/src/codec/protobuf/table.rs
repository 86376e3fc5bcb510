//! Tests of all messages in the table, and of one body that Kubernetes' clients send.

use serde_json::{Map, Value, json};

use super::messages::{self, Message};
use super::tests::{body, decode, field};
use super::{Reader, encode};

/// Messages below the one that is tested.
const LEVELS: usize = 2;

/// An object with all fields of a message. Messages that are nested deeper are left out.
fn filled(message: Message, level: usize) -> Map<String, Value> {
    let mut object = Map::new();
    for field in message {
        match sample(field.kind, level) {
            Some(Value::Object(inlined)) if field.name.is_empty() => object.extend(inlined),
            Some(value) => drop(object.insert(field.name.to_owned(), value)),
            None => {}
        }
    }
    object
}

fn sample(kind: &str, level: usize) -> Option<Value> {
    if let Some(name) = kind.strip_prefix('@') {
        let message = messages::message(name).filter(|_| level < LEVELS)?;
        return Some(Value::Object(filled(message, level + 1))).filter(|object| *object != json!({}));
    }
    if let Some(element) = kind.strip_prefix('*') {
        return Some(json!([sample(element, level)?, sample(element, level)?]));
    }
    if let Some(element) = kind.strip_prefix('%') {
        return Some(json!({"a": sample(element, level)?, "b/c": sample(element, level)?}));
    }
    Some(match kind {
        "i" => json!(-3),
        "d" => json!(0.5),
        "b" => json!(true),
        "y" => json!("AAEC/w=="),
        "q" => json!("1Gi"),
        "o" => json!(80),
        "t" => json!("2026-01-02T03:04:05Z"),
        "u" => json!("2026-01-02T03:04:05.000006Z"),
        "f" | "r" => json!({"f:a": [1]}),
        "x" | "l" => json!({"type": "string"}),
        "w" => json!(["a"]),
        _ => json!("text"),
    })
}

#[test]
fn every_field_of_every_message_comes_back() {
    for name in messages::names() {
        let message = messages::message(name).expect("the message");
        let object = filled(message, 0);
        let mut encoded = Vec::new();
        assert_eq!(encode::write(&mut encoded, message, &object), Some(()), "{name}");
        assert_eq!(Reader::default().read(message, &encoded, 0), Ok(object), "{name}");
    }
}

/// The body of `kubectl certificate approve`. `extra` is a map of lists; a time that is not set is an empty message.
#[test]
fn approved_signing_request_is_read() {
    let second = [8u8, 1, 16, 0];
    let managed = [field(1, b"kubectl-create"), field(4, &second), field(7, &field(1, br#"{"f:spec":{}}"#))].concat();
    // Field 17 takes two bytes.
    let managed = [vec![0x8a, 0x01, u8::try_from(managed.len()).expect("short")], managed].concat();
    let metadata = [field(1, b"foo"), managed].concat();
    let extra = |key: &[u8], values: &[u8]| field(6, &[field(1, key), field(2, values)].concat());
    let spec = [
        field(1, b"PEM"),
        field(2, b"admin"),
        field(4, b"system:masters"),
        field(4, b"system:authenticated"),
        field(5, b"client auth"),
        extra(b"authentication.kubernetes.io/credential-id", &[field(1, b"JTI=1"), field(1, b"")].concat()),
        extra(b"empty", b""),
        field(7, b"example.com/signer"),
        vec![8 << 3, 60],
    ]
    .concat();
    let condition = [
        field(1, b"Approved"),
        field(2, b"KubectlApprove"),
        field(3, b"approved"),
        field(4, &second),
        field(5, b""),
        field(6, b"True"),
    ]
    .concat();
    let raw = [field(1, &metadata), field(2, &spec), field(3, &field(1, &condition))].concat();
    let (version, kind) = ("certificates.k8s.io/v1", "CertificateSigningRequest");
    let expected = json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": "foo", "managedFields": [
            {"manager": "kubectl-create", "time": "1970-01-01T00:00:01Z", "fieldsV1": {"f:spec": {}}}]},
        "spec": {
            "request": "UEVN", "username": "admin", "groups": ["system:masters", "system:authenticated"],
            "usages": ["client auth"], "signerName": "example.com/signer", "expirationSeconds": 60,
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=1", ""], "empty": []},
        },
        "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "KubectlApprove",
            "message": "approved", "lastUpdateTime": "1970-01-01T00:00:01Z"}]},
    });
    assert_eq!(decode(&body(version, kind, &raw)), Ok(expected));
}
