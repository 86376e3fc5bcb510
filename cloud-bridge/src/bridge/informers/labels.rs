//! The labels of a node, for a pod that selects by them. Read once, after the pod was seen: labels that were set before
//! the pod was created are included. No watch: ten thousand of them would be expensive for an API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use serde_json::json;

use super::news::{Subscription, What};
use crate::bridge::pauses::Pauses;
use crate::bridge::slim::made_object;

/// Pause after a failure, doubled up to the second value.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// Runs until it has sent the labels, or is aborted. `client` acts as the node.
pub(super) async fn tell_labels(client: Client, node: String, to: Subscription) {
    let nodes: Api<Node> = Api::all(client);
    let mut pauses = Pauses::new(AGAIN);
    loop {
        let what = match nodes.get_opt(&node).await {
            Ok(Some(found)) => {
                let labels = found.metadata.labels.unwrap_or_default();
                let body = json!({"kind": to.key.kind, "labels": labels});
                What::Present(made_object(to.key.clone(), to.key.name.clone(), body))
            }
            // The node is about to register again.
            Ok(None) => What::Failed,
            Err(error) => {
                log::warn!("node {node}: asking for its labels: {error}");
                What::Failed
            }
        };
        let told = matches!(what, What::Present(_));
        if to.tell(what).await.is_none() || told {
            return;
        }
        pauses.wait().await;
    }
}
