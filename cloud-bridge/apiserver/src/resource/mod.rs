//! The descriptor of a served resource, the same for built-in ones and custom ones. Knows neither.

pub(crate) mod catalogue;
pub mod cel;
pub mod object_meta;
pub(crate) mod rules;
pub(crate) mod status;
pub mod strategy;
pub(crate) mod typed;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::codec::{decode, parse};
use rules::Rules;
use strategy::Strategy;

/// Text that is static for built-in resources and owned for custom ones.
pub type Text = Cow<'static, str>;

/// What answers requests of a subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// It is a part of the object, read and written as the object is (`status`).
    Part,
    Binding,
    Eviction,
    Finalize,
    Scale,
    Token,
    /// Text that the object's node has.
    Log,
    /// A stream between the client and the object's node.
    Connect,
    /// Served by the kubelet of the node.
    Proxy,
    /// Served by the pod itself.
    PodProxy,
}

/// A subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, `log`, `exec`, `binding`, `ephemeralcontainers`, `eviction`, `scale`, `token`…
    pub name: Text,
    /// Group, version and kind of its requests and answers.
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    pub verbs: &'static [&'static str],
    pub(crate) serves: Serves,
}

impl Subresource {
    /// A part of the object, in the group, version and kind of the object itself.
    pub(crate) fn status(group: Text, version: Text, kind: Text) -> Self {
        Self { name: "status".into(), group, version, kind, verbs: STATUS_VERBS, serves: Serves::Part }
    }

    /// The version is that of the Scale, whatever the object's is.
    pub(crate) fn scale() -> Self {
        Self {
            name: "scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
            verbs: STATUS_VERBS,
            serves: Serves::Scale,
        }
    }
}

/// How a hook is reached: built-in kinds are static, custom ones carry their schema.
#[derive(Clone)]
pub enum Hooks {
    Builtin(&'static dyn Strategy),
    /// Nothing is stored: the answer is measured on the nodes.
    Measured,
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
            Hooks::Measured => &strategy::Plain,
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

    /// Returns what answers a subresource; `None` if it does not exist.
    pub(crate) fn subresource(&self, name: &str) -> Option<Serves> {
        self.subresources.iter().find(|s| s.name == name).map(|s| s.serves)
    }

    /// True when the resource has this subresource.
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresource(name).is_some()
    }

    /// Rules of the kind for the verbs.
    pub(crate) fn rules(&self) -> &Rules {
        self.strategy().rules()
    }

    /// A stored object by the rules of now.
    pub(crate) fn read<'a>(&self, stored: &'a Value) -> Cow<'a, Value> {
        self.strategy().read(stored).map_or(Cow::Borrowed(stored), Cow::Owned)
    }

    /// Whether tenants write it: a built-in kind in a namespace.
    pub(crate) fn is_of_tenants(&self) -> bool {
        self.decode.is_some() && self.namespaced
    }

    /// Maximum memory of the values of a body, in bytes.
    pub(crate) fn body_memory(&self) -> usize {
        if self.is_of_tenants() { parse::TENANT_MEMORY_MAX } else { parse::MEMORY_MAX }
    }

    /// Lifetime of an object without another write; `None` for unlimited.
    pub(crate) fn life(&self) -> Option<Duration> {
        self.rules().ttl
    }

    /// True when the stored form is not the served one.
    pub(crate) fn converts(&self) -> bool {
        self.rules().conversion.is_some()
    }

    /// Converts the served form to the stored one.
    pub(crate) fn to_stored(&self, value: &mut Value) {
        if let Some(conversion) = self.rules().conversion {
            (conversion.to_stored)(value);
        }
    }

    /// Converts the stored form to the served one.
    pub(crate) fn to_served(&self, value: &mut Value) {
        if let Some(conversion) = self.rules().conversion {
            (conversion.to_served)(value);
        }
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
