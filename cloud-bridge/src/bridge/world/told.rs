//! An object as nodes receive it: one copy for any number of nodes.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use edge_protocol::message::{Object, ObjectKey};
use edge_protocol::state::Body;

/// Objects that nodes receive as one, by their keys.
pub type Group = BTreeMap<ObjectKey, Arc<Told>>;

/// An object and, from its first use, its body as text.
#[derive(Clone, Debug)]
pub struct Told {
    object: Object,
    body: OnceLock<Arc<Body>>,
}

impl Told {
    pub fn new(object: Object) -> Arc<Self> {
        Arc::new(Self { object, body: OnceLock::new() })
    }

    /// Same as [`new`](Self::new), for an object of which the bridge reads only the name: it is kept only as text,
    /// which takes a fifth of the memory.
    pub fn packed(object: Object) -> Arc<Self> {
        let body = OnceLock::from(Arc::new(Body::new(object.body.to_string())));
        Arc::new(Self { object: Object { body: serde_json::Value::Null, ..object }, body })
    }

    /// The object as text, shared by all callers.
    pub fn text(&self) -> Arc<Body> {
        Arc::clone(self.body.get_or_init(|| Arc::new(Body::new(self.object.body.to_string()))))
    }
}

impl Deref for Told {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}
