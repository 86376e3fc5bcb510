//! The shapes of objects as they are read, without `flatten`: serde reads a flattened struct through a
//! buffered copy of the whole value, which would build every body twice.

use super::ObjectKey;
use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Ref {
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Deserialize)]
pub(super) struct Digest {
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
    uid: String,
    digest: String,
}

#[derive(Deserialize)]
pub(super) struct Object {
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
    uid: String,
    digest: String,
    body: serde_json::Value,
}

impl From<Ref> for super::ObjectRef {
    fn from(Ref { kind, namespace, name, uid }: Ref) -> Self {
        Self { key: ObjectKey { kind, namespace, name }, uid }
    }
}

impl From<Digest> for super::ObjectDigest {
    fn from(Digest { kind, namespace, name, uid, digest }: Digest) -> Self {
        Self { key: ObjectKey { kind, namespace, name }, uid, digest }
    }
}

impl From<Object> for super::Object {
    fn from(Object { kind, namespace, name, uid, digest, body }: Object) -> Self {
        Self { digest: super::ObjectDigest { key: ObjectKey { kind, namespace, name }, uid, digest }, body }
    }
}
