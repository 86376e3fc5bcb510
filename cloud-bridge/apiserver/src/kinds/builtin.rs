//! The table of the built-in resources, and which strategy each of them has.

use std::sync::Arc;

use super::custom::definition::Definition;
use super::metrics;
use crate::codec::decode;
use crate::kinds;
use crate::resource::strategy::{Plain, Strategy};
use crate::resource::{ALL_VERBS, Hooks, Resource, STATUS_VERBS, Subresource, Text};

const CREATE: &[&str] = &["create"];
/// Verbs of what is upgraded.
const CONNECT: &[&str] = &["create", "get"];
const GET: &[&str] = &["get"];
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
pub fn resources() -> Vec<Arc<Resource>> {
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
    .chain(metrics::resources())
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
                &Definition
            } else {
                strategy(self.group, self.kind)
            }),
        }
    }
}

/// The strategy of the built-in kind `kind` of `group` (empty for the core group).
pub fn strategy(group: &str, kind: &str) -> &'static dyn Strategy {
    match (group, kind) {
        ("", "ConfigMap") => &kinds::CONFIG_MAP,
        ("", "Endpoints") => &kinds::ENDPOINTS,
        ("" | "events.k8s.io", "Event") => &kinds::EVENT,
        ("", "Namespace") => &kinds::NAMESPACE,
        ("", "Node") => &kinds::NODE,
        ("", "PersistentVolume") => &kinds::PERSISTENT_VOLUME,
        ("", "PersistentVolumeClaim") => &kinds::PERSISTENT_VOLUME_CLAIM,
        ("", "Pod") => &kinds::POD,
        ("", "Secret") => &kinds::SECRET,
        ("", "Service") => &kinds::SERVICE,
        ("", "ServiceAccount") => &kinds::SERVICE_ACCOUNT,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &kinds::CRD,
        ("coordination.k8s.io", "Lease") => &kinds::LEASE,
        ("discovery.k8s.io", "EndpointSlice") => &kinds::ENDPOINT_SLICE,
        ("node.k8s.io", "RuntimeClass") => &kinds::RUNTIME_CLASS,
        _ => &Plain,
    }
}
