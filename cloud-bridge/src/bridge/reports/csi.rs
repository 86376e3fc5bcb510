//! Writes the CSI drivers of a node: its CSINode, and topology and ids on its Node. All in the node's own name.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use jiff::Timestamp;
use sampan_log::printable::printable;
use serde_json::{Value, json};

use super::Reports;
use super::csi_drivers::{Drivers, Plan, has_drivers};
use super::event::node_warning;
use super::failure::Failure;
use crate::bridge::requests::{Patch, code};

const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";

impl Reports {
    pub(super) async fn write_drivers(&self, drivers: &Value) -> Result<(), Failure> {
        let any = drivers.as_array().is_some_and(|drivers| !drivers.is_empty());
        if any && !self.csi.load(Ordering::Relaxed) {
            // One from before it was switched off.
            return Err(Failure::Refused("the node does not mount volumes of CSI drivers".to_owned()));
        }
        *self.newest_drivers() = any.then(|| drivers.to_string().into_boxed_str());
        let path = format!("/api/v1/nodes/{}", self.node.name);
        let node: Value = match self.requests.get(&path).await {
            // Its report, which comes in an order of its own, has not registered it yet.
            Err(error) if code(&error) == Some(404) => return Err(Failure::Changed),
            found => found?,
        };
        let wanted = Drivers::read(drivers, &node);
        // First, as the kubelet does: the Node of a driver in a CSINode has its topology.
        if let Some(patch) = wanted.metadata(&node) {
            self.requests.patch(&path, Patch::Merge, &patch).await?;
        }
        self.write_csi_node(&wanted, node["metadata"]["uid"].as_str().unwrap_or_default()).await?;
        self.tell_of_drivers(&wanted.problems).await;
        Ok(())
    }

    /// Removes the drivers of a node that no longer mounts volumes of CSI drivers; `node`: its object in the API.
    pub(super) async fn forget_drivers(&self, node: &Value) {
        if self.csi.load(Ordering::Relaxed) || !has_drivers(node) {
            return;
        }
        if let Err(failure) = self.write_drivers(&json!([])).await {
            log::warn!("node {}: its CSI drivers were not removed: {failure:?}", self.node.name);
        }
    }

    /// Writes the drivers again as last reported: the CSINode ends with its Node.
    pub(super) async fn rewrite_drivers(&self) -> Result<(), Failure> {
        let newest = self.newest_drivers().clone();
        // It was valid JSON when it was stored.
        match newest.and_then(|text| serde_json::from_str(&text).ok()) {
            Some(drivers) => self.write_drivers(&drivers).await,
            None => Ok(()),
        }
    }

    async fn write_csi_node(&self, wanted: &Drivers, node_uid: &str) -> Result<(), Failure> {
        let path = format!("{CSI_NODES}/{}", self.node.name);
        let held = match self.requests.get::<Value>(&path).await {
            Err(error) if code(&error) == Some(404) => None,
            found => Some(found?),
        };
        let text = |field: &str| held.as_ref().and_then(|held| held["metadata"][field].as_str()).unwrap_or_default();
        match wanted.plan(held.as_ref(), node_uid) {
            Plan::Nothing => Ok(()),
            Plan::Create(drivers) => match self.requests.create(CSI_NODES, &self.csi_node(drivers, node_uid)).await {
                Err(error) if code(&error) == Some(409) => Err(Failure::Changed),
                other => Ok(other.map(drop)?),
            },
            Plan::Delete => self.requests.delete_now(&path, text("uid")).await.map(drop).map_err(raced),
            Plan::Replace => {
                self.requests.delete_now(&path, text("uid")).await.map_err(raced)?;
                Err(Failure::Changed)
            }
            Plan::Update(lists) => self.update_drivers(&path, text("resourceVersion"), lists).await.map_err(raced),
        }
    }

    async fn update_drivers(&self, path: &str, version: &str, lists: Vec<Vec<Value>>) -> kube::Result<()> {
        let mut version = version.to_owned();
        for drivers in lists {
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"drivers": drivers}});
            version = self.requests.patch(path, Patch::Merge, &patch).await?.metadata.resource_version;
        }
        Ok(())
    }

    fn csi_node(&self, drivers: Vec<Value>, node_uid: &str) -> Value {
        let name = &self.node.name;
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {
                "name": name,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}],
            },
            "spec": {"drivers": drivers},
        })
    }

    /// Reports drivers that are left out.
    async fn tell_of_drivers(&self, problems: &[String]) {
        if problems.is_empty() {
            return;
        }
        let said = format!("left out of the CSI drivers of this Node: {}", problems.join("; "));
        log::warn!("node {}: {}", self.node.name, printable(&said));
        let event = node_warning(&self.node.name, "InvalidCSIDrivers", &said, Timestamp::now());
        if let Err(failure) = self.write_event(&event).await {
            log::warn!("node {}: an event was lost: {failure:?}", self.node.name);
        }
    }

    fn newest_drivers(&self) -> MutexGuard<'_, Option<Box<str>>> {
        self.newest_drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The failure of a write of an object that was just read: another client may have changed or deleted it since.
fn raced(error: kube::Error) -> Failure {
    if matches!(code(&error), Some(404 | 409)) { Failure::Changed } else { error.into() }
}
