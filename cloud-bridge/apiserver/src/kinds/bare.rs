//! Resources without stored objects: names, verbs, and handlers.

use std::sync::Arc;

use crate::resource::{Hooks, Resource};

/// One such resource.
pub(super) struct Bare {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) singular: String,
    pub(super) short_names: &'static [&'static str],
    pub(super) namespaced: bool,
    pub(super) verbs: &'static [&'static str],
    pub(super) hooks: Hooks,
}

impl Bare {
    /// Returns the served resource.
    pub(super) fn resource(self) -> Arc<Resource> {
        Arc::new(Resource {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            plural: self.plural.into(),
            singular: self.singular.into(),
            short_names: self.short_names.iter().map(|name| (*name).into()).collect(),
            namespaced: self.namespaced,
            categories: Vec::new(),
            verbs: self.verbs,
            subresources: Vec::new(),
            has_generation: false,
            decode: None,
            storage: format!("{}.{}", self.plural, self.group).into(),
            hooks: self.hooks,
        })
    }
}
