//! An object as nodes are told it: once, however many they are.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use edge_protocol::message::Object;

/// An object and, from the first time that it is asked for, its body's text.
#[derive(Clone, Debug)]
pub struct Told {
    object: Object,
    text: OnceLock<Arc<str>>,
}

impl Told {
    pub(super) fn new(object: Object) -> Arc<Self> {
        Arc::new(Self { object, text: OnceLock::new() })
    }

    /// The same for all who ask.
    pub fn text(&self) -> Arc<str> {
        Arc::clone(self.text.get_or_init(|| self.object.body.to_string().into()))
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
