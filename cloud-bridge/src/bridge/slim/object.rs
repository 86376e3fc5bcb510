//! Objects as nodes receive them, with their digests. Pure.

use std::sync::Arc;

use edge_protocol::message::{Object, ObjectDigest, ObjectKey};
use kube::api::{DynamicObject, ObjectMeta};
use ring::digest;
use sampan_json::SetField;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bridge::told::Told;
use crate::pki::encoding::hex;

/// A ConfigMap, Secret, RuntimeClass or CSIDriver as a node gets it. `kind` is the requested one: items of lists do not
/// name it. `None` without name or uid.
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

/// A claim with the status of its volume's attachment, which `status` finds by driver and handle, for one node. `None`
/// for a claim without one.
pub fn with_attachment(claim: &Told, status: impl FnOnce(&str, &str) -> Option<String>) -> Option<Arc<Told>> {
    let text = claim.text();
    let ClaimWithVolume { volume } = serde_json::from_str(text.text()).ok()?;
    let CsiSource { driver, handle } = volume?.spec.csi?;
    let status = status(&driver, &handle)?;
    let text = format!("{},\"attachment\":{status}}}", text.text().strip_suffix('}')?);
    let ObjectDigest { key, uid, .. } = claim.digest.clone();
    Some(Told::with_text(digest_of(key, uid, &text), text, false))
}

/// Part of a claim as nodes get it.
#[derive(Deserialize)]
struct ClaimWithVolume {
    #[serde(default)]
    volume: Option<Volume>,
}

#[derive(Deserialize)]
struct Volume {
    spec: VolumeSpec,
}

#[derive(Deserialize)]
struct VolumeSpec {
    #[serde(default)]
    csi: Option<CsiSource>,
}

#[derive(Deserialize)]
struct CsiSource {
    driver: String,
    #[serde(rename = "volumeHandle")]
    handle: String,
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
