//! Writes of the scheduler to the API: bindings, conditions, deletions. No decisions.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod as CorePod};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use sampan_json::SetField;
use serde_json::{Value, json};

use super::cluster::{Failure, unschedulable_patch};
use super::pod::Pod;
use super::told::{self, NAME};
use super::volumes::SELECTED_NODE;
use crate::events::Recorder;
use apimachinery::meta::rfc3339;

pub(super) struct Writer {
    client: Client,
}

impl Writer {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
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
    pub(super) async fn fail(&self, failure: &Failure, nominated: Option<&str>) {
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
    pub(super) async fn preempt(
        &self,
        victims: &[Arc<Pod>],
        preemptor: &Pod,
        node: &str,
        events: &mut Recorder,
    ) -> bool {
        let mut all = true;
        for victim in victims.iter().filter(|victim| !victim.deleting) {
            match self.delete(victim).await {
                Ok(true) => events.record(told::preempted(victim, preemptor, node)),
                Ok(false) => {}
                Err(error) => {
                    log::warn!("scheduler: preempting pod {}/{}: {error}", victim.key.0, victim.key.1);
                    all = false;
                }
            }
        }
        all
    }

    /// Deletes a pod. False if it went by itself, or is another pod by now.
    async fn delete(&self, victim: &Pod) -> kube::Result<bool> {
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
            Ok(()) => Ok(true),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
