//! The resources of `metrics.k8s.io`: read only, and nothing of them is stored.

use std::sync::Arc;

use crate::resource::{ALL_VERBS, Hooks, Resource};

/// The group of these resources.
const GROUP: &str = "metrics.k8s.io";
/// Read only.
pub(crate) const VERBS: &[&str] = &["get", "list"];

/// What the group serves. Nothing of it is stored.
pub(crate) fn resources() -> Vec<Arc<Resource>> {
    debug_assert!(VERBS.iter().all(|verb| ALL_VERBS.contains(verb)));
    [("NodeMetrics", "nodes", false), ("PodMetrics", "pods", true)]
        .into_iter()
        .map(|(kind, plural, namespaced)| {
            Arc::new(Resource {
                group: GROUP.into(),
                version: "v1beta1".into(),
                kind: kind.into(),
                list_kind: format!("{kind}List").into(),
                plural: plural.into(),
                singular: "".into(),
                short_names: Vec::new(),
                namespaced,
                categories: Vec::new(),
                verbs: VERBS,
                subresources: Vec::new(),
                has_generation: false,
                decode: None,
                storage: format!("{plural}.{GROUP}").into(),
                hooks: Hooks::Measured,
            })
        })
        .collect()
}
