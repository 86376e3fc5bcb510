//! Single questions to the API, asked until it answers: what a list or a node's memory says is checked with them
//! before anything is concluded from it.

use std::time::Duration;

use edge_protocol::message::ObjectKey;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};

use super::resource;
use crate::bridge::lanes::Outcome;
use crate::bridge::refs::{CLAIM, SERVICE_LINKS};
use crate::bridge::reports;
use crate::bridge::requests::Requests;
use crate::bridge::watched::{BoundPod, WatchedPod};

/// Pause before a question to the API that failed is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// Answers of the API to single questions.
pub(super) enum Answer {
    Seed {
        node: String,
        pods: Vec<BoundPod>,
    },
    /// A pod that a list lacked is gone indeed.
    Gone {
        node: String,
        key: ObjectKey,
        uid: String,
    },
    Nothing,
}

/// The pods of a node, asked until the API answers.
pub(super) async fn seed(pods: Api<WatchedPod>, node: String) -> Answer {
    let mut parameters = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(500);
    let mut found = Vec::new();
    loop {
        match pods.list(&parameters).await {
            Ok(page) => {
                let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
                found.extend(page.items.into_iter().filter_map(WatchedPod::into_bound));
                match next {
                    Some(token) => parameters = parameters.continue_token(&token),
                    None => return Answer::Seed { node, pods: found },
                }
            }
            Err(error) => {
                log::warn!("listing the pods of node {node}: {error}");
                // A page that has expired: from the start.
                found.clear();
                parameters.continue_token = None;
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Whether the API has no such object any more, or another one of the same name, or gave it to another node.
pub(super) async fn is_gone(client: Client, node: String, key: ObjectKey, uid: String) -> Answer {
    let path = match key.kind.as_str() {
        "Pod" => "pods",
        "ConfigMap" => "configmaps",
        "Secret" => "secrets",
        CLAIM => "persistentvolumeclaims",
        // Of the bridge's own making: gone when no pod here uses it, which is what led to this question.
        SERVICE_LINKS => return Answer::Gone { node, key, uid },
        _ => return Answer::Nothing,
    };
    let resource = resource(&key.kind, path);
    let api: Api<DynamicObject> = Api::namespaced_with(client, &key.namespace, &resource);
    loop {
        let gone = match api.get_opt(&key.name).await {
            Ok(None) => true,
            Ok(Some(found)) => found.metadata.uid.as_deref().is_some_and(|found| found != uid),
            // What a node has no right to read any more is of no use to it, but that is not for us to conclude.
            Err(kube::Error::Api(status)) if status.is_forbidden() => false,
            Err(error) => {
                log::warn!("asking for {} {}/{}: {error}", key.kind, key.namespace, key.name);
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        return if gone { Answer::Gone { node, key, uid } } else { Answer::Nothing };
    }
}

pub(super) async fn restore_ready(requests: Requests, key: ObjectKey, uid: String) -> Answer {
    log_failure(&key, "calling it ready again", reports::restore_ready(&requests, &key, &uid).await);
    Answer::Nothing
}

pub(super) async fn finish_mirror(requests: Requests, key: ObjectKey, uid: String) -> Answer {
    log_failure(&key, "finishing its deletion", reports::delete_pod(&requests, &key, &uid).await);
    Answer::Nothing
}

fn log_failure(key: &ObjectKey, what: &str, outcome: Outcome) {
    if let Outcome::Refused(reason) | Outcome::Retry(reason) = outcome {
        log::warn!("pod {}/{}: {what}: {reason}", key.namespace, key.name);
    }
}
