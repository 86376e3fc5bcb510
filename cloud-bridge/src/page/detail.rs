//! One node as its page shows it: read from the API on request, with the data of the board.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use sampan_page::Change;
use serde_json::{Value, json};

use super::board::cut;
use crate::bridge::overview::NodeView;

/// Maximum number of listed pods of a node; a node may have a few hundred.
const PODS: u32 = 500;
/// Maximum number of conditions, labels and addresses.
const MANY: usize = 64;
/// Maximum length of a text, in bytes.
const TEXT: usize = 500;

/// Reads the node; `None` if both the API and the bridge do not know it.
///
/// # Errors
/// The API does not answer.
pub(super) async fn read(
    client: &Client,
    name: &str,
    link: Option<NodeView>,
    timeline: Vec<Change>,
) -> kube::Result<Option<Value>> {
    let node = Api::<Node>::all(client.clone()).get_opt(name).await?;
    if node.is_none() && link.is_none() {
        return Ok(None);
    }
    let of_node = ListParams::default().fields(&format!("spec.nodeName={name}")).limit(PODS);
    let pods = Api::<Pod>::all(client.clone()).list(&of_node).await?.items;
    let mut shown = node.map_or_else(|| json!({}), |node| object(&node));
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("name".to_owned(), name.into());
        fields.insert("pods".to_owned(), pods.iter().map(pod).collect());
        fields.insert("timeline".to_owned(), json!(timeline));
        fields.insert("link".to_owned(), json!(link));
    }
    Ok(Some(shown))
}

fn object(node: &Node) -> Value {
    let status = node.status.clone().unwrap_or_default();
    let info = status.node_info.unwrap_or_default();
    let conditions = status.conditions.iter().flatten().take(MANY).map(|one| {
        let since = one.last_transition_time.as_ref().map(|at| at.0.as_second());
        json!([one.type_, one.status, word(&one.reason), word(&one.message), since])
    });
    let labels = node.metadata.labels.iter().flatten().take(MANY).map(|(key, value)| json!([key, value]));
    let addresses = status.addresses.iter().flatten().take(MANY).map(|one| json!([one.type_, one.address]));
    let capacity =
        |name: &str| status.capacity.as_ref().and_then(|all| all.get(name)).map(|quantity| quantity.0.clone());
    json!({
        "created": node.metadata.creation_timestamp.as_ref().map(|at| at.0.as_second()),
        "cordoned": node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default(),
        "labels": labels.collect::<Vec<_>>(),
        "addresses": addresses.collect::<Vec<_>>(),
        "conditions": conditions.collect::<Vec<_>>(),
        "system": [
            ["Version", info.kubelet_version], ["Container runtime", info.container_runtime_version],
            ["Kernel", info.kernel_version], ["System", info.os_image], ["Architecture", info.architecture],
        ],
        "capacity": [["CPU", capacity("cpu")], ["Memory", capacity("memory")], ["Storage", capacity("ephemeral-storage")],
            ["Pods", capacity("pods")]],
    })
}

/// Namespace, name, phase, whether it is ready, restarts, start time, and the reason of a problem.
fn pod(pod: &Pod) -> Value {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let ready = status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    let restarts = containers.iter().fold(0, |all: i32, one| all.saturating_add(one.restart_count));
    let all = status.init_container_statuses.iter().flatten().chain(&containers);
    let waiting = all.filter_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.as_deref()).next();
    let phase = match pod.metadata.deletion_timestamp {
        Some(_) => "Terminating",
        None => status.phase.as_deref().unwrap_or_default(),
    };
    let why = status.reason.as_deref().or(waiting).unwrap_or_default();
    let since = pod.metadata.creation_timestamp.as_ref().map(|at| at.0.as_second());
    json!([pod.metadata.namespace, pod.metadata.name, cut(phase, TEXT), ready, restarts, since, cut(why, TEXT)])
}

fn word(text: &Option<String>) -> &str {
    cut(text.as_deref().unwrap_or_default(), TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_and_its_pods_become_what_the_page_shows() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"x": "<b>"}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m".repeat(2000)}],
                "capacity": {"cpu": "4"},
            },
        }))
        .unwrap();
        let shown = object(&node);
        assert_eq!(shown["conditions"][0][3].as_str().unwrap().len(), TEXT);
        assert_eq!((&shown["labels"][0], &shown["capacity"][0]), (&json!(["x", "<b>"]), &json!(["CPU", "4"])));
        assert_eq!(shown["cordoned"], true);
        let one: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "p"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [
                {"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        }))
        .unwrap();
        assert_eq!(pod(&one), json!(["ns", "p", "Running", false, 3, null, "CrashLoopBackOff"]));
        let mut starts = one;
        if let Some(status) = &mut starts.status {
            status.init_container_statuses = status.container_statuses.take();
        }
        assert_eq!(pod(&starts)[6], "CrashLoopBackOff", "an init container waits");
    }
}
