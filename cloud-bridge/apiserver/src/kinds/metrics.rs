//! The resources of `metrics.k8s.io`: read only, and nothing of them is stored.

use std::sync::Arc;

use super::bare::Bare;
use crate::resource::{ALL_VERBS, Hooks, Resource};

/// The group of these resources.
const GROUP: &str = "metrics.k8s.io";
/// Read only.
pub(crate) const VERBS: &[&str] = &["get", "list"];

/// The resources of the group. None is stored.
pub(crate) fn resources() -> Vec<Arc<Resource>> {
    debug_assert!(VERBS.iter().all(|verb| ALL_VERBS.contains(verb)));
    [("NodeMetrics", "nodes", false), ("PodMetrics", "pods", true)]
        .into_iter()
        .map(|(kind, plural, namespaced)| {
            Bare {
                group: GROUP,
                version: "v1beta1",
                kind,
                plural,
                singular: String::new(),
                short_names: &[],
                namespaced,
                verbs: VERBS,
                hooks: Hooks::Measured,
            }
            .resource()
        })
        .collect()
}
