//! How an object is named.

use serde_json::Value;

/// Names an object in messages and storage keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { namespace: String::new(), name: name.to_owned() }
    }

    /// The key of an object, from its metadata.
    pub fn of(obj: &Value) -> Self {
        let text = |field: &str| obj["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self { namespace: text("namespace"), name: text("name") }
    }
}
