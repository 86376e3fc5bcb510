//! One topology spread constraint of a pod. Pure.

use serde_json::Value;

use super::selector::add_label_keys;
use apimachinery::json::{integer, items, text};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constraint {
    pub(super) required: bool,
    pub(super) max_skew: i64,
    pub(super) topology_key: String,
    pub(super) selector: Value,
    /// If there are fewer domains, the emptiest one counts as having no pod.
    pub(super) min_domains: i64,
    pub(super) honor_affinity: bool,
    pub(super) honor_taints: bool,
    /// Pods with this controller count, independent of their labels: the default for pods without constraints.
    pub(super) owner: Option<String>,
}

impl Constraint {
    pub(super) fn all_of(spec: &Value, labels: &Value) -> Vec<Self> {
        items(spec, "topologySpreadConstraints").iter().map(|one| Self::of(one, labels)).collect()
    }

    fn of(constraint: &Value, labels: &Value) -> Self {
        let mut selector = constraint["labelSelector"].clone();
        add_label_keys(&mut selector, items(constraint, "matchLabelKeys"), "In", labels);
        Self {
            required: text(constraint, "whenUnsatisfiable") != "ScheduleAnyway",
            max_skew: integer(constraint, "maxSkew").unwrap_or(1),
            topology_key: text(constraint, "topologyKey").to_owned(),
            selector,
            min_domains: integer(constraint, "minDomains").unwrap_or(1),
            honor_affinity: text(constraint, "nodeAffinityPolicy") != "Ignore",
            honor_taints: text(constraint, "nodeTaintsPolicy") == "Honor",
            owner: None,
        }
    }
}
