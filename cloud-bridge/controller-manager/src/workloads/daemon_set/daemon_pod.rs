//! The pod of a DaemonSet on one node: its labels, its tolerations, and how it is tied to the node (K8s
//! pkg/controller/daemon/util/daemonset_util.go).

use std::sync::Arc;

use apimachinery::typed;
use k8s_openapi::api::core::v1::{Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use serde_json::json;

use super::context::{Context, GENERATION_LABEL};
use crate::workloads::claim::controller_reference;
use crate::workloads::history::HASH_LABEL;
use crate::workloads::limit::limited;
use crate::workloads::plan::{Action, Plan};
use crate::workloads::template;
use crate::workloads::world::Kind;

/// Creates pods for these nodes. They differ only in their affinity.
pub(super) fn create_on(context: &Context<'_>, nodes: &[&str]) -> Plan {
    if nodes.is_empty() {
        return Plan::default();
    }
    let meta = &context.set.metadata;
    let Some(template) = context.template else {
        return Plan::one_by_one(vec![Action::read(Kind::DaemonSet, meta)]);
    };
    let mut metadata = template.metadata.clone();
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), context.hash.to_owned());
    labels.extend(context.generation.map(|number| (GENERATION_LABEL.to_owned(), number.to_string())));
    let shared = Arc::new(template.spec.with("tolerations", &context.on_nodes["tolerations"]));
    let affinity: Option<Affinity> = typed::read(&template.spec.get("affinity")).unwrap_or_default();
    let affinity = affinity.unwrap_or_default();
    let prefix = template::prefix(meta.name.as_deref().unwrap_or_default());
    let owner = controller_reference(Kind::DaemonSet, meta);
    let (teller, namespace) = (context.teller(), meta.namespace.as_deref().unwrap_or_default());
    let pods = nodes.iter().map(|node| {
        let own = json!({"affinity": tied(affinity.clone(), node)});
        template::pod((None, prefix.as_str()), metadata.clone(), own, &shared, &owner)
    });
    Plan::slow_start(limited(pods.map(|pod| teller.create_pod(namespace, pod))))
}

/// Binds the pod to the node by name, for the scheduler. The node has met the rest of its node affinity.
fn tied(mut affinity: Affinity, node: &str) -> Affinity {
    let field = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
    affinity.node_affinity.get_or_insert_default().required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    affinity
}
