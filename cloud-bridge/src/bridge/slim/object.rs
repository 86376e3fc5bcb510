//! Objects as nodes receive them, with their digests. Pure.

use edge_protocol::message::{Object, ObjectDigest, ObjectKey};
use kube::api::{DynamicObject, ObjectMeta};
use ring::digest;
use sampan_json::SetField;
use serde_json::{Value, json};

use crate::pki::encoding::hex;

/// A ConfigMap, Secret or RuntimeClass as a node gets it. `kind` is the requested one: items of lists do not name it.
/// `None` without name or uid.
pub fn config_object(kind: &str, from: DynamicObject) -> Option<Object> {
    let key = key(kind, &from.metadata);
    let uid = from.metadata.uid.clone().filter(|uid| !uid.is_empty() && !key.name.is_empty())?;
    let mut body = match from.data {
        Value::Object(fields) => Value::Object(fields),
        _ => json!({}),
    };
    body.set("apiVersion", "v1".into());
    body.set("kind", kind.into());
    body.set("metadata", trimmed(from.metadata));
    Some(object(key, uid, body))
}

/// An object that does not exist in this form in the API.
pub fn made_object(key: ObjectKey, uid: String, body: Value) -> Object {
    object(key, uid, body)
}

pub(super) fn key(kind: &str, metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey {
        kind: kind.to_owned(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

pub(super) fn trimmed(mut metadata: ObjectMeta) -> Value {
    metadata.managed_fields = None;
    metadata.resource_version = None;
    metadata.self_link = None;
    if let Some(annotations) = &mut metadata.annotations {
        // A copy of the manifest, which only kubectl uses.
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    serde_json::to_value(metadata).unwrap_or_default()
}

fn object(key: ObjectKey, uid: String, body: Value) -> Object {
    Object { digest: digest_of(key, uid, &body.to_string()), body }
}

pub(super) fn digest_of(key: ObjectKey, uid: String, text: &str) -> ObjectDigest {
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    // Half of the hash suffices: it distinguishes versions of one object, and forging it gains nothing.
    let digest = hex(&hash.as_ref()[..16]);
    ObjectDigest { key, uid, digest }
}

/// Adds a status to the text of an object without one.
pub(super) fn with_status(object: &str, status: Option<&Value>) -> String {
    match object.strip_suffix('}').zip(status) {
        Some((fields, status)) => format!("{fields},\"status\":{status}}}"),
        None => object.to_owned(),
    }
}
