//! The pod of a DaemonSet on one node: its labels, its tolerations, and how it is tied to the node (K8s
//! pkg/controller/daemon/util/daemonset_util.go).

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};
use serde_json::Value;

use super::context::{Context, GENERATION_LABEL};
use super::fit::tolerate;
use crate::workloads::claim::controller_reference;
use crate::workloads::history::HASH_LABEL;
use crate::workloads::limit::limited;
use crate::workloads::plan::Plan;
use crate::workloads::template;
use crate::workloads::world::Kind;

/// Makes pods for these nodes.
pub(super) fn create_on(context: &Context<'_>, nodes: &[&str]) -> Plan {
    let namespace = context.set.metadata.namespace.as_deref().unwrap_or_default();
    let pods = nodes.iter().map(|node| pod(context, node));
    Plan::slow_start(limited(pods.map(|pod| context.teller().create_pod(namespace, pod))))
}

/// The pod for a node.
fn pod(context: &Context<'_>, node: &str) -> Value {
    let mut wanted = context.spec.template.clone();
    let labels = wanted.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), context.hash.to_owned());
    labels.extend(context.generation.map(|number| (GENERATION_LABEL.to_owned(), number.to_string())));
    let spec = wanted.spec.get_or_insert_default();
    tolerate(spec);
    tie(spec, node);
    let meta = &context.set.metadata;
    let prefix = template::prefix(meta.name.as_deref().unwrap_or_default());
    template::pod(&wanted, &prefix, &controller_reference(Kind::DaemonSet, meta))
}

/// Ties the pod to the node by name: the scheduler binds it there. What else its node affinity says the node has met.
fn tie(spec: &mut PodSpec, node: &str) {
    let field = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}
