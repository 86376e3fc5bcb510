//! The descriptor of a served resource and the table of the built-in ones. Custom resources use the same
//! descriptor, made by `crd`.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::strategy::Strategy;
use super::{builtin, decode};

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
const CREATE: &[&str] = &["create"];
/// Verbs of what is upgraded.
const CONNECT: &[&str] = &["create", "get"];
const GET: &[&str] = &["get"];
/// Verbs of a status subresource.
pub const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    all: bool,
    status: bool,
    generation: bool,
    decode: Option<decode::Check>,
}

macro_rules! row {
    ($g:literal, $v:literal, $kind:literal, $plural:literal, $singular:literal, $short:expr, $ty:ty, $($flag:ident),*) => {{
        #[allow(unused_mut)]
        let mut row = Row {
            group: $g, version: $v, kind: $kind, plural: $plural, singular: $singular, short: &$short,
            namespaced: false, all: false, status: false, generation: false,
            decode: Some(decode::check::<$ty>),
        };
        $(row.$flag = true;)*
        row
    }};
}

/// The built-in resources, in discovery order.
pub fn builtin_resources() -> Vec<Arc<Resource>> {
    use k8s_openapi::api::{
        coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery, events::v1 as events,
        node::v1 as node,
    };
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as ext;
    [
        row!("", "v1", "ConfigMap", "configmaps", "configmap", ["cm"], core::ConfigMap, namespaced),
        row!("", "v1", "Endpoints", "endpoints", "endpoints", ["ep"], core::Endpoints, namespaced),
        row!("", "v1", "Event", "events", "event", ["ev"], core::Event, namespaced),
        row!("", "v1", "Namespace", "namespaces", "namespace", ["ns"], core::Namespace, status),
        row!("", "v1", "Node", "nodes", "node", ["no"], core::Node, status),
        row!(
            "",
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            "persistentvolumeclaim",
            ["pvc"],
            core::PersistentVolumeClaim,
            namespaced,
            status
        ),
        row!(
            "",
            "v1",
            "PersistentVolume",
            "persistentvolumes",
            "persistentvolume",
            ["pv"],
            core::PersistentVolume,
            status
        ),
        row!("", "v1", "Pod", "pods", "pod", ["po"], core::Pod, namespaced, all, status, generation),
        row!("", "v1", "Secret", "secrets", "secret", [], core::Secret, namespaced),
        row!("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", ["sa"], core::ServiceAccount, namespaced),
        row!("", "v1", "Service", "services", "service", ["svc"], core::Service, namespaced, all, status),
        row!("coordination.k8s.io", "v1", "Lease", "leases", "lease", [], coordination::Lease, namespaced),
        row!(
            "discovery.k8s.io",
            "v1",
            "EndpointSlice",
            "endpointslices",
            "endpointslice",
            [],
            discovery::EndpointSlice,
            namespaced,
            generation
        ),
        row!("events.k8s.io", "v1", "Event", "events", "event", ["ev"], events::Event, namespaced),
        row!("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass", [], node::RuntimeClass,),
        row!(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "customresourcedefinition",
            ["crd", "crds"],
            ext::CustomResourceDefinition,
            status,
            generation
        ),
    ]
    .into_iter()
    .map(|row| Arc::new(row.into_resource()))
    .chain(super::metrics::resources())
    .collect()
}

impl Row {
    fn into_resource(self) -> Resource {
        let mut subresources = Vec::new();
        let mut sub = |name: &'static str, group: &'static str, kind: &'static str, verbs| {
            let version = self.version;
            subresources.push(Subresource {
                name: name.into(),
                group: group.into(),
                version: version.into(),
                kind: kind.into(),
                verbs,
            });
        };
        if self.kind == "Pod" {
            sub("attach", "", "PodAttachOptions", CONNECT);
            sub("binding", "", "Binding", CREATE);
            sub("ephemeralcontainers", "", "Pod", STATUS_VERBS);
            sub("eviction", "policy", "Eviction", CREATE);
            sub("exec", "", "PodExecOptions", CONNECT);
            sub("log", "", "Pod", GET);
            sub("portforward", "", "PodPortForwardOptions", CONNECT);
            sub("resize", "", "Pod", STATUS_VERBS);
        }
        if self.kind == "Node" {
            sub("proxy", "", "NodeProxyOptions", GET);
        }
        if self.kind == "ServiceAccount" {
            sub("token", "authentication.k8s.io", "TokenRequest", CREATE);
        }
        if self.status {
            sub("status", self.group, self.kind, STATUS_VERBS);
        }
        let storage = match (self.group, self.plural) {
            // One storage, two views: core/v1 is the stored form.
            (_, "events") => "events".into(),
            ("", plural) => Text::from(plural),
            (group, plural) => Text::from(format!("{plural}.{group}")),
        };
        Resource {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            plural: self.plural.into(),
            singular: self.singular.into(),
            short_names: self.short.iter().map(|s| Text::from(*s)).collect(),
            namespaced: self.namespaced,
            categories: if self.all {
                vec!["all".into()]
            } else if self.group == "apiextensions.k8s.io" {
                vec!["api-extensions".into()]
            } else {
                Vec::new()
            },
            verbs: ALL_VERBS,
            subresources,
            has_generation: self.generation,
            decode: self.decode,
            storage,
            hooks: Hooks::Builtin(if self.kind == "CustomResourceDefinition" {
                &super::crd::definition::Definition
            } else {
                builtin::strategy(self.group, self.kind)
            }),
        }
    }
}

/// Names an object in messages and storage keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    /// The key of an object as its metadata says.
    pub fn of(obj: &Value) -> Self {
        let text = |field: &str| obj["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self { namespace: text("namespace"), name: text("name") }
    }
}
