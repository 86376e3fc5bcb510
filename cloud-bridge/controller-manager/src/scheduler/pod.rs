//! The parts of a pod that affect scheduling, read once from its object. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::affinity::{Affinity, Namespaces};
use super::constraint::Constraint;
use super::needs::Needs;
use apimachinery::json::{integer, items, present, text};

/// Namespace and name.
pub(super) type PodKey = (String, String);

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Pod {
    pub(super) key: PodKey,
    pub(super) uid: String,
    pub(super) labels: Value,
    pub(super) created: String,
    pub(super) priority: i64,
    /// Whether it waits instead of preempting others.
    pub(super) never_preempts: bool,
    /// The uid of its controller.
    pub(super) owner: String,
    pub(super) node: String,
    /// Node for which it is nominated.
    pub(super) nominated: String,
    pub(super) started: String,
    pub(super) deleting: bool,
    /// Whether it is being deleted because a scheduler preempted it.
    pub(super) preempted: bool,
    /// It will not run again.
    pub(super) ended: bool,
    /// This scheduler is to find a node for it.
    pub(super) wanted: bool,
    /// Time since which its object has the condition that it has no node.
    pub(super) unscheduled_since: Option<String>,
    pub(super) needs: Needs,
    pub(super) affinity: Affinity,
    pub(super) spread: Vec<Constraint>,
    /// Names of its claims, those of ephemeral volumes among them.
    pub(super) claims: Box<[String]>,
    /// The parts of its spec about nodes and volumes. Not kept for pods with a node: there may be thousands.
    pub(super) spec: Value,
}

impl Pod {
    pub(crate) fn read(metadata: &ObjectMeta, object: &Value) -> Self {
        let (spec, status) = (&object["spec"], &object["status"]);
        let labels = json!(metadata.labels);
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let node = text(spec, "nodeName").to_owned();
        let deleting = metadata.deletion_timestamp.is_some();
        let condition = |kind: &str| items(status, "conditions").iter().find(|one| text(one, "type") == kind);
        let preempted = condition("DisruptionTarget")
            .is_some_and(|one| text(one, "status") == "True" && text(one, "reason") == "PreemptionByScheduler");
        let waiting = condition("PodScheduled").filter(|one| text(one, "status") == "False");
        let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
            priority: integer(spec, "priority").unwrap_or_default(),
            never_preempts: text(spec, "preemptionPolicy") == "Never",
            owner: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
            nominated: text(status, "nominatedNodeName").to_owned(),
            started: text(status, "startTime").to_owned(),
            deleting,
            preempted,
            ended: ["Succeeded", "Failed"].contains(&text(status, "phase")),
            wanted: node.is_empty() && !deleting && is_ours(spec),
            unscheduled_since: waiting.map(|one| text(one, "lastTransitionTime").to_owned()),
            needs: Needs::of(spec),
            affinity: Affinity::of(spec, &namespace, &labels),
            spread: if node.is_empty() { Constraint::all_of(spec, &labels) } else { Vec::new() },
            spec: if node.is_empty() { about_nodes(spec, name) } else { Value::Null },
            claims: claims(spec, name).map(|(claim, _)| claim).collect(),
            key: (namespace, metadata.name.clone().unwrap_or_default()),
            labels,
            node,
        }
    }

    /// Whether other pods decide where it may be.
    pub(super) fn looks_at_pods(&self) -> bool {
        self.affinity.has_required() || self.spread.iter().any(|one| one.required)
    }

    /// Whether taints decide over which nodes it is spread.
    pub(super) fn spread_by_taints(&self) -> bool {
        self.spread.iter().any(|one| one.required && one.honor_taints)
    }

    /// Whether a pod that comes may give this one a place.
    pub(super) fn is_helped_by(&self, other: &Self, namespaces: &Namespaces) -> bool {
        let spread = self.spread.iter().any(|one| one.required && one.counts(&self.key.0, other));
        spread || self.affinity.is_drawn_to(other, namespaces)
    }

    /// Whether the deletion of a pod may make room for this one, on any node.
    pub(super) fn is_hindered_by(&self, other: &Self, namespaces: &Namespaces) -> bool {
        // One on its way out has ceased to count, and that may be the news.
        let spread = self.spread.iter().any(|one| one.required && one.selects(&self.key.0, other));
        let shares = || self.key.0 == other.key.0 && self.claims.iter().any(|claim| other.claims.contains(claim));
        spread || self.affinity.minds(other, namespaces) || other.affinity.keeps_off(self, namespaces) || shares()
    }

    /// Names of its claims.
    pub(super) fn claims(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().map(String::as_str)
    }

    /// Start time, for comparisons: a pod that has not started comes last (K8s pkg/scheduler/util, `GetPodStartTime`).
    pub(super) fn start(&self) -> &str {
        if self.started.is_empty() { "~" } else { &self.started }
    }
}

/// Whether this scheduler places the pod: one that is not gated, asking for us.
fn is_ours(spec: &Value) -> bool {
    items(spec, "schedulingGates").is_empty()
        && present(spec, "schedulerName").is_none_or(|name| name == "default-scheduler")
}

/// The parts of a spec that restrict the nodes. Of volumes only claims: a pod may have thousands of others, and the one
/// with its token has another name in each pod.
fn about_nodes(spec: &Value, name: &str) -> Value {
    let mut kept = json!({});
    for field in ["nodeSelector", "tolerations"] {
        kept.set(field, spec[field].clone());
    }
    let volume = |(claim, ephemeral): (String, bool)| {
        let mut volume = json!({"persistentVolumeClaim": {"claimName": claim}});
        if ephemeral {
            volume.set("ephemeral", true.into());
        }
        volume
    };
    kept.set("volumes", claims(spec, name).map(volume).collect());
    kept.set_at(&["affinity", "nodeAffinity"], spec["affinity"]["nodeAffinity"].clone());
    kept
}

/// The claims of a pod of this name, and whether each is of an ephemeral volume.
fn claims(spec: &Value, pod: &str) -> impl Iterator<Item = (String, bool)> {
    items(spec, "volumes").iter().filter_map(move |volume| {
        if present(volume, "ephemeral").is_some() {
            return Some((format!("{pod}-{}", text(volume, "name")), true));
        }
        let claim = text(&volume["persistentVolumeClaim"], "claimName");
        (!claim.is_empty()).then(|| (claim.to_owned(), false))
    })
}

/// How many these are, for signed counts.
pub(super) fn number(pods: &[Arc<Pod>]) -> i64 {
    i64::try_from(pods.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_volumes_claims_alone_are_kept() {
        let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let volumes = json!([claim("data"), {"name": "c", "configMap": {"name": "c"}}, {"name": "kube-api-access-x7k2p"},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
        let pod = |node: &str| {
            let spec = json!({"nodeName": node, "nodeSelector": {"a": "b"}, "volumes": volumes});
            let metadata = ObjectMeta { name: Some("web".to_owned()), ..ObjectMeta::default() };
            Pod::read(&metadata, &json!({ "spec": spec }))
        };
        let waits = pod("");
        let own = json!({"persistentVolumeClaim": {"claimName": "web-scratch"}, "ephemeral": true});
        assert_eq!(waits.spec["volumes"], json!([{"persistentVolumeClaim": {"claimName": "data"}}, own]));
        let names = vec!["data", "web-scratch"];
        assert_eq!(
            (waits.claims().collect::<Vec<_>>(), &waits.spec["nodeSelector"]["a"]),
            (names.clone(), &json!("b"))
        );
        assert!(pod("n").spec.is_null());
        assert_eq!(pod("n").claims().collect::<Vec<_>>(), names, "they count against the limits of its node");
    }
}
