//! Writes of the scheduler to the API: bindings, conditions, deletions, events. No decisions.

use std::collections::VecDeque;
use std::sync::Arc;

use edge_protocol::json::SetField;
use edge_protocol::names::event_name;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod as CorePod};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::cluster::{Failure, unschedulable_patch};
use super::pod::Pod;
use super::volumes::SELECTED_NODE;
use apimachinery::meta::rfc3339;

const NAME: &str = "default-scheduler";
/// Events not yet written; beyond this the oldest are dropped, as they are only for people.
const EVENTS_MAX: usize = 1024;

pub(super) struct Writer {
    client: Client,
    events: VecDeque<Value>,
}

/// Maximum length of a message in an event with an `eventTime`, in bytes (K8s pkg/apis/core/validation/events.go
/// `NoteLengthLimit`).
const MESSAGE_MAX: usize = 1024;

struct Told<'a> {
    kind: &'a str,
    reason: &'a str,
    action: &'a str,
    message: &'a str,
}

impl Writer {
    pub(super) fn new(client: Client) -> Self {
        Self { client, events: VecDeque::new() }
    }

    fn pods(&self, pod: &Pod) -> Api<CorePod> {
        Api::namespaced(self.client.clone(), &pod.key.0)
    }

    /// Binds a pod. False if it has no node after all.
    pub(super) fn bind(&self, pod: &Pod, node: &str) -> impl Future<Output = bool> + Send + use<> {
        let (api, (namespace, name), node) = (self.pods(pod), pod.key.clone(), node.to_owned());
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        async move {
            let params = PostParams::default();
            let bound = api.create_subresource::<Value, Value>("binding", &name, &params, &binding).await;
            if let Err(error) = &bound {
                // Deleted or bound by another client meanwhile; the watch shows the present state.
                log::info!("scheduler: binding pod {namespace}/{name} to {node}: {error}");
            }
            bound.is_ok()
        }
    }

    /// Records the event of a binding.
    pub(super) fn bound(&mut self, pod: &Pod, node: &str) {
        let (namespace, name) = &pod.key;
        let message = format!("Successfully assigned {namespace}/{name} to {node}");
        self.tell(pod, &Told { kind: "Normal", reason: "Scheduled", action: "Binding", message: &message });
    }

    /// Writes into claims of a pod where their volumes must be made. True if all writes succeeded.
    pub(super) async fn select(&self, pod: &Pod, node: &str, claims: &[(String, String)]) -> bool {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &pod.key.0);
        for (name, uid) in claims {
            let patch = json!({"metadata": {"uid": uid, "annotations": {SELECTED_NODE: node}}});
            if let Err(error) = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                log::info!("scheduler: the node of claim {}/{name}: {error}", pod.key.0);
                return false;
            }
        }
        true
    }

    /// Writes why a pod has no node, and the node for which it is nominated.
    pub(super) async fn fail(&mut self, failure: &Failure, nominated: Option<&str>) {
        let message = &failure.message;
        let told = Told { kind: "Warning", reason: "FailedScheduling", action: "Scheduling", message };
        self.tell(&failure.pod, &told);
        let mut patch = unschedulable_patch(failure, &rfc3339(Timestamp::now()));
        if let Some(node) = nominated {
            patch.set_at(&["status", "nominatedNodeName"], node.into());
        }
        self.patch_status(&failure.pod, &patch).await;
    }

    /// These pods are no longer nominated.
    pub(super) async fn unnominate(&self, pods: &[Arc<Pod>]) {
        for pod in pods {
            let patch = json!({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": null}});
            self.patch_status(pod, &patch).await;
        }
    }

    async fn patch_status(&self, pod: &Pod, patch: &Value) -> bool {
        let params = PatchParams::default();
        match self.pods(pod).patch_status(&pod.key.1, &params, &Patch::Strategic(patch)).await {
            Ok(_) => true,
            Err(error) => {
                log::info!("scheduler: status of pod {}/{}: {error}", pod.key.0, pod.key.1);
                false
            }
        }
    }

    /// Deletes pods gracefully for a more important one. True if all of them go.
    pub(super) async fn preempt(&mut self, victims: &[Arc<Pod>], preemptor: &Pod, node: &str) -> bool {
        let mut all = true;
        for victim in victims.iter().filter(|victim| !victim.deleting) {
            all &= self.delete(victim, preemptor, node).await;
        }
        all
    }

    async fn delete(&mut self, victim: &Pod, preemptor: &Pod, node: &str) -> bool {
        let condition = json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": format!("{NAME}: preempting to accommodate a higher priority pod"),
            "lastProbeTime": null, "lastTransitionTime": rfc3339(Timestamp::now()),
        }]}});
        let api = self.pods(victim);
        // The condition comes first, so that clients that read the pod later see the reason.
        let marked = api.patch_status(&victim.key.1, &PatchParams::default(), &Patch::Strategic(&condition)).await;
        let same = Preconditions { uid: Some(victim.uid.clone()), resource_version: None };
        let deleted = match marked {
            Ok(_) => api.delete(&victim.key.1, &DeleteParams::default().preconditions(same)).await.map(drop),
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) => {
                let message = format!("Preempted by pod {} on node {node}", preemptor.uid);
                let told = Told { kind: "Normal", reason: "Preempted", action: "Preempting", message: &message };
                self.tell(victim, &told);
                true
            }
            // It went by itself, or is another pod by now.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => true,
            Err(error) => {
                log::warn!("scheduler: preempting pod {}/{}: {error}", victim.key.0, victim.key.1);
                false
            }
        }
    }

    fn tell(&mut self, pod: &Pod, told: &Told<'_>) {
        let now = Timestamp::now();
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        let (namespace, name) = &pod.key;
        self.events.push_back(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": event_name(name, &format!("{:x}", now.as_nanosecond())), "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": pod.uid},
            "reason": told.reason, "message": cut(told.message), "type": told.kind, "action": told.action,
            "eventTime": format!("{now:.6}"), "firstTimestamp": null, "lastTimestamp": null,
            "reportingComponent": NAME, "reportingInstance": NAME, "source": {},
        }));
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Writes the next event.
    pub(super) fn next_event(&mut self) -> Option<BoxFuture<'static, ()>> {
        Some(write(self.client.clone(), self.events.pop_front()?).boxed())
    }
}

async fn write(client: Client, event: Value) {
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Event>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);
    let written = match serde_json::from_value(event) {
        Ok(event) => api.create(&PostParams::default(), &event).await.map(drop),
        Err(error) => Err(kube::Error::SerdeError(error)),
    };
    if let Err(error) = written {
        log::info!("scheduler: writing an event in {namespace}: {error}");
    }
}

/// The message within the limit of an event (K8s pkg/scheduler/schedule_one.go `truncateMessage`).
fn cut(message: &str) -> String {
    const END: &str = " ...";
    if message.len() <= MESSAGE_MAX {
        return message.to_owned();
    }
    let mut ends = (0..=MESSAGE_MAX - END.len()).rev();
    let end = ends.find(|end| message.is_char_boundary(*end)).unwrap_or_default();
    format!("{}{END}", message.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_letters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"a".repeat(1024)).len(), 1024);
        assert_eq!(cut(&"a".repeat(1025)), format!("{} ...", "a".repeat(1020)));
        assert_eq!(cut(&"€".repeat(500)), format!("{} ...", "€".repeat(340)));
    }
}
