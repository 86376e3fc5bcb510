//! The descriptor of a served resource, the same for built-in ones (`builtin`) and custom ones (`crd`). Knows neither.

pub(crate) mod catalogue;
pub mod object_meta;
pub(crate) mod status;
pub mod strategy;
pub(crate) mod typed;

use std::borrow::Cow;
use std::sync::Arc;

use crate::codec::decode;
use strategy::Strategy;

/// Text that is static for built-in resources and owned for custom ones.
pub type Text = Cow<'static, str>;

/// A subresource beside `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, `log`, `exec`, `binding`, `ephemeralcontainers`, `eviction`, `scale`, `token`…
    pub name: Text,
    /// Group, version and kind of what it takes and returns.
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    pub verbs: &'static [&'static str],
}

/// How a hook is reached: built-in kinds are static, custom ones carry their schema.
#[derive(Clone)]
pub enum Hooks {
    Builtin(&'static dyn Strategy),
    Custom(Arc<dyn Strategy>),
}

/// One served resource in one version.
pub struct Resource {
    /// Empty for the core group.
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    pub list_kind: Text,
    pub plural: Text,
    pub singular: Text,
    pub short_names: Vec<Text>,
    pub namespaced: bool,
    pub categories: Vec<Text>,
    pub verbs: &'static [&'static str],
    pub subresources: Vec<Subresource>,
    /// `metadata.generation` starts at 1 and rises with each change of `spec`.
    pub has_generation: bool,
    /// Typed check of a decoded body; `None` for custom resources, whose strategy checks by schema.
    pub decode: Option<decode::Check>,
    /// The key under which objects are stored; two views of one storage (events) share it.
    pub storage: Text,
    pub hooks: Hooks,
}

impl Resource {
    /// The kind's hooks.
    pub fn strategy(&self) -> &dyn Strategy {
        match &self.hooks {
            Hooks::Builtin(strategy) => *strategy,
            Hooks::Custom(strategy) => strategy.as_ref(),
        }
    }

    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods` or `leases.coordination.k8s.io`, as messages name the resource.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_string() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// True when the resource has this subresource.
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources.iter().any(|s| s.name == name)
    }

    /// True for a resource that a CustomResourceDefinition made.
    pub fn is_custom(&self) -> bool {
        matches!(self.hooks, Hooks::Custom(_))
    }
}

/// All verbs of an ordinary resource.
pub const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Verbs of a status subresource.
pub const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
