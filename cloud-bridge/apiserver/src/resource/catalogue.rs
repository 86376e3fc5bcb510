//! Which resources are served now: the built-in ones and those of custom resource definitions.

use std::sync::{Arc, PoisonError, RwLock};

use super::Resource;

/// The served resources.
pub(crate) struct Registry {
    all: RwLock<Vec<Arc<Resource>>>,
}

impl Registry {
    /// `builtin` stay for as long as the server runs.
    pub(crate) fn new(builtin: Vec<Arc<Resource>>) -> Self {
        Self { all: RwLock::new(builtin) }
    }

    /// All of them, built-in first.
    pub(crate) fn all(&self) -> Vec<Arc<Resource>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The resource that a path names.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.first(|r| r.plural == plural && r.group == group && r.version == version)
    }

    /// Any version of a kind, for owner references.
    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.first(|r| r.kind == kind && r.group == group)
    }

    /// The first resource kept in this storage.
    pub(crate) fn by_storage(&self, storage: &str) -> Option<Arc<Resource>> {
        self.first(|r| r.storage == storage)
    }

    fn first(&self, test: impl Fn(&Resource) -> bool) -> Option<Arc<Resource>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|r| test(r)).cloned()
    }

    /// Replaces the resources of one custom resource definition (by its storage key) with these.
    pub(crate) fn replace_custom(&self, storage: &str, with: Vec<Arc<Resource>>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|r| !(r.is_custom() && r.storage == storage));
        all.extend(with);
    }
}
