//! Single questions to the API, repeated until it answers. They confirm what a list or a node's memory says before the
//! bridge acts on it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::well_known::PAGE;
use edge_protocol::message::ObjectKey;
use kube::Api;
use kube::api::ListParams;

use super::answer::Answer;
use crate::bridge::autonomy::Autonomy;
use crate::bridge::reports;
use crate::bridge::requests::{Patch, Requests, is_refusal};
use crate::bridge::slim::{BoundPod, SlimPod};
use crate::bridge::work_queue::Outcome;
use crate::bridge::world::{Effect, Round};

/// Pause before a failed question is repeated.
pub(super) const AGAIN: Duration = Duration::from_secs(2);
/// Limit of the pause before a failed write is repeated, which doubles: a webhook may fail for one pod without end, and
/// an API that is overloaded has a hundred thousand of them.
const LONGEST: Duration = Duration::from_secs(60);

/// Lists the pods of a node, until the API answers. Returns them with the node and the version of the list.
pub(super) async fn seed(pods: Api<SlimPod>, node: String) -> (String, Vec<BoundPod>, Option<u64>) {
    let (pods, at) = pods_of(pods, &node, SlimPod::into_bound).await;
    (node, pods, at)
}

/// Returns what `take` makes of each pod in a complete list of the pods bound to a node, and the version of the list.
pub(super) async fn pods_of<T>(
    pods: Api<SlimPod>,
    node: &str,
    take: impl Fn(SlimPod) -> Option<T>,
) -> (Vec<T>, Option<u64>) {
    let what = format!("the pods of node {node}");
    let parameters = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let mut found = Vec::new();
    let at = list(pods, parameters, &what, &mut found, move |found, pod| found.extend(take(pod))).await;
    (found, at)
}

/// Lists the pods of a node, until the API answers, and returns the patches of their tolerations.
pub(super) async fn pods_to_reconcile(pods: Api<SlimPod>, autonomy: Arc<Autonomy>, node: String) -> Answer {
    let (patches, _) = pods_of(pods, &node, move |pod| tolerations(&autonomy, &pod)).await;
    Answer::Tolerations(patches)
}

/// The patch that applies the tolerations of the node's object to a pod, as JSON text; `None` if they are applied.
pub(super) fn tolerations(autonomy: &Autonomy, pod: &SlimPod) -> Option<(ObjectKey, String)> {
    let patch = autonomy.patch(pod)?;
    Some((pod.key(), patch.to_string()))
}

/// Lists the pods of many nodes in one list of all: after a restart thousands of nodes reconnect within seconds, and
/// for an API server a list by node visits every pod.
pub(super) async fn seed_many(pods: Api<SlimPod>, nodes: HashSet<String>, round: Round) -> Answer {
    let mut all: HashMap<String, Vec<BoundPod>> = nodes.into_iter().map(|node| (node, Vec::new())).collect();
    let take = |all: &mut HashMap<String, Vec<BoundPod>>, pod: SlimPod| {
        if all.contains_key(pod.node())
            && let Some(pod) = pod.into_bound()
            && let Some(pods) = all.get_mut(&pod.node)
        {
            pods.push(pod);
        }
    };
    let at = list(pods, ListParams::default(), "all pods", &mut all, take).await;
    Answer::Seeds { all: all.into_iter().map(|(node, pods)| (node, pods, at)).collect(), round }
}

/// A result that can be reset and started again.
trait Found {
    fn forget(&mut self);
}

impl<T> Found for Vec<T> {
    fn forget(&mut self) {
        self.clear();
    }
}

impl Found for HashMap<String, Vec<BoundPod>> {
    fn forget(&mut self) {
        self.values_mut().for_each(Vec::clear);
    }
}

/// Reads a complete list; returns its resource version, which all its pages share.
///
/// Parsed pods take up to 56 times the memory of their text. There is one page of them at a time for all lists: all
/// questions belong to one task, which parses a page and takes what is needed of it in one step.
async fn list<F: Found>(
    pods: Api<SlimPod>,
    parameters: ListParams,
    what: &str,
    found: &mut F,
    take: impl Fn(&mut F, SlimPod),
) -> Option<u64> {
    let mut parameters = parameters.limit(PAGE);
    loop {
        match pods.list(&parameters).await {
            Ok(page) => {
                let at = page.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
                let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
                page.items.into_iter().for_each(|pod| take(found, pod));
                match next {
                    Some(token) => parameters = parameters.continue_token(&token),
                    None => return at,
                }
            }
            Err(error) => {
                log::warn!("listing {what}: {error}");
                // A page has expired: start again.
                found.forget();
                parameters.continue_token = None;
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Pause after this number of failed writes before.
fn pause(failures: u32) -> Duration {
    AGAIN.saturating_mul(1 << failures.min(5)).min(LONGEST)
}

/// Sends the patch of a pod's tolerations, until the API answers. The patch is for the version of the pod that was read.
pub(super) async fn reconcile_tolerations(requests: Requests, key: ObjectKey, patch: String) -> Answer {
    let path = format!("/api/v1/namespaces/{}/pods/{}", key.namespace, key.name);
    let mut failures = 0_u32;
    loop {
        match requests.patch_text(&path, Patch::Merge, patch.clone()).await {
            Ok(_) => return Answer::Nothing,
            // Changed or deleted meanwhile: the watch delivers the present state.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.code == 409 => return Answer::Nothing,
            Err(error) => {
                log::warn!(
                    "pod {}/{}: its tolerations cannot be set (the bridge needs the right to patch pods): {error}",
                    key.namespace,
                    key.name
                );
                if is_refusal(&error) {
                    return Answer::Nothing;
                }
            }
        }
        tokio::time::sleep(pause(failures)).await;
        failures = failures.saturating_add(1);
    }
}

/// `version`: the one in which the pod is falsely not ready; and the attempts that failed before.
pub(super) async fn restore_ready(
    requests: Requests,
    node: String,
    key: ObjectKey,
    uid: String,
    (version, failures): (Option<u64>, u32),
) -> Answer {
    let outcome = reports::restore_ready(&requests, &key, &uid, version).await;
    let what = format!("pod {}/{}: calling it ready again", key.namespace, key.name);
    let again = Effect::RestoreReady { node, key, uid, version, failures: failures.saturating_add(1) };
    ended(outcome, &what, failures, again).await
}

pub(super) async fn finish_mirror(
    requests: Requests,
    node: String,
    key: ObjectKey,
    uid: String,
    failures: u32,
) -> Answer {
    let outcome = reports::delete_pod(&requests, &key, &uid).await;
    let what = format!("pod {}/{}: finishing its deletion", key.namespace, key.name);
    let again = Effect::FinishMirror { node, key, uid, failures: failures.saturating_add(1) };
    ended(outcome, &what, failures, again).await
}

/// Logs a failure. If the API did not answer, the effect `due` is needed again after a pause.
async fn ended(outcome: Outcome, what: &str, failures: u32, due: Effect) -> Answer {
    let again = matches!(outcome, Outcome::Retry(_) | Outcome::Conflict(_));
    if let Some(reason) = outcome.problem() {
        log::warn!("{what}: {reason}");
    }
    if !again {
        return Answer::Nothing;
    }
    tokio::time::sleep(pause(failures)).await;
    Answer::Again(due)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;

    /// An API with this number of pods on a node, and the number of pods in its largest answer.
    fn api(pods: usize) -> (Api<SlimPod>, Arc<AtomicUsize>) {
        let most = Arc::new(AtomicUsize::new(0));
        let largest = Arc::clone(&most);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default();
            let number = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.parse::<usize>().ok());
            let (from, limit) = (number("continue=").unwrap_or_default(), number("limit=").unwrap_or(pods));
            let until = pods.min(from + limit);
            largest.fetch_max(until - from, Ordering::Relaxed);
            let pod = |at: usize| json!({"metadata": {"name": format!("p{at}"), "uid": format!("u{at}")}});
            let items: Vec<Value> = (from..until).map(pod).collect();
            let next = if until < pods { until.to_string() } else { String::new() };
            let metadata = json!({"resourceVersion": "7", "continue": next});
            let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": items}).to_string();
            async move {
                let body = http_body_util::Full::new(bytes::Bytes::from(list));
                Ok::<_, Infallible>(http::Response::new(body))
            }
        });
        (Api::all(kube::Client::new(service, "default")), most)
    }

    #[tokio::test]
    async fn pods_of_a_node_are_read_in_small_pages() {
        let (pods, most) = api(1024);
        let (uids, at) = pods_of(pods, "a", |pod| Some(pod.uid().to_owned())).await;
        assert_eq!((uids.len(), uids[1023].as_str(), at), (1024, "u1023", Some(7)));
        assert_eq!(most.load(Ordering::Relaxed), 25, "parsed at a time");
    }

    #[test]
    fn failed_write_backs_off() {
        let seconds: Vec<u64> = (0..7).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(u32::MAX), LONGEST);
    }
}
