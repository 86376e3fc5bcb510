//! Objects on the wire: their names, digests and bodies.
//!
//! They are read in flat shapes: serde reads a flattened struct through a buffered copy of the whole value, which would
//! build every body twice.

use serde::{Deserialize, Serialize};

/// Names one Kubernetes object. `namespace` is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// `Pod`, `ConfigMap`, `Secret`, ...
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

/// An object without its body: enough to know whether both sides hold the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "FlatDigest")]
pub struct ObjectDigest {
    #[serde(flatten)]
    pub key: ObjectKey,
    pub uid: String,
    /// Hex of a hash over the body's bytes as sent; opaque to the edge, compared for equality only.
    pub digest: String,
}

/// An object with its body, the JSON of the Kubernetes object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "FlatObject")]
pub struct Object {
    #[serde(flatten)]
    pub digest: ObjectDigest,
    pub body: serde_json::Value,
}

/// An object named with its uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "FlatRef")]
pub struct ObjectRef {
    #[serde(flatten)]
    pub key: ObjectKey,
    pub uid: String,
}

#[derive(Deserialize)]
struct FlatRef {
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Deserialize)]
struct FlatDigest {
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
    uid: String,
    digest: String,
}

#[derive(Deserialize)]
struct FlatObject {
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
    uid: String,
    digest: String,
    body: serde_json::Value,
}

impl From<FlatRef> for ObjectRef {
    fn from(FlatRef { kind, namespace, name, uid }: FlatRef) -> Self {
        Self { key: ObjectKey { kind, namespace, name }, uid }
    }
}

impl From<FlatDigest> for ObjectDigest {
    fn from(FlatDigest { kind, namespace, name, uid, digest }: FlatDigest) -> Self {
        Self { key: ObjectKey { kind, namespace, name }, uid, digest }
    }
}

impl From<FlatObject> for Object {
    fn from(FlatObject { kind, namespace, name, uid, digest, body }: FlatObject) -> Self {
        Self { digest: ObjectDigest { key: ObjectKey { kind, namespace, name }, uid, digest }, body }
    }
}
