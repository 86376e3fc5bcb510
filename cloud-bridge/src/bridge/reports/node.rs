//! Writes the node's own object.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use sampan_json::SetField;
use sampan_log::printable::printable;
use serde_json::{Value, json};

use super::event::node_warning;
use super::failure::Failure;
use super::node_object::{ROLE_LABEL, Wanted, is_bare};
use super::{Reports, labels, news};
use crate::bridge::requests::{Patch, code};
use crate::bridge::sites::lan_addresses;
use crate::bridge::well_known::{LAN_ADDRESSES, PEER_ADDRESS, SESSION_ANNOTATION};

impl Reports {
    /// Registers the node, or updates its object, and writes where its neighbours reach it.
    pub(super) async fn write_node(&self, node: &Value) -> Result<(), Failure> {
        self.write_object(node).await?;
        self.write_place(&node["status"]).await?;
        self.write_own_places().await
    }

    /// Writes where other bridges reach this one, in its own name: a node must not decide where the requests and tokens of
    /// clients are sent.
    async fn write_own_places(&self) -> Result<(), Failure> {
        let places = self.overrides.places();
        if places.is_empty() || !self.replicated || self.places_said.load(Ordering::Relaxed) {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": places}});
        self.own.patch(&format!("/api/v1/nodes/{}", self.node.name), Patch::Merge, &patch).await?;
        self.places_said.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the addresses of the node on its LAN, as the bridge sees them, or removes them. A node may do neither
    /// itself.
    async fn write_place(&self, status: &Value) -> Result<(), Failure> {
        let peer = self.lan.get();
        let place = peer.map(|peer| (lan_addresses(status), peer.to_string()));
        let before = self.place.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if before == place {
            return Ok(());
        }
        let (addresses, peer) = place.clone().unzip();
        let patch = json!({"metadata": {"annotations": {LAN_ADDRESSES: addresses, PEER_ADDRESS: peer}}});
        self.own.patch(&format!("/api/v1/nodes/{}", self.node.name), Patch::Merge, &patch).await?;
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
        Ok(())
    }

    async fn write_object(&self, node: &Value) -> Result<(), Failure> {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        if name != self.node.name {
            return Err(Failure::Refused(format!("node {} reports a node object named {name:?}", self.node.name)));
        }
        // Without a version the object looks as the join created it, and the next report would complete it again.
        if node["status"]["nodeInfo"]["kubeletVersion"].as_str().is_none_or(str::is_empty) {
            return Err(Failure::Refused("a node has to say its version (status.nodeInfo.kubeletVersion)".to_owned()));
        }
        let now = Timestamp::now();
        let kubelet = self.overrides.kubelet.as_ref().and_then(|endpoint| endpoint(name));
        let mut wanted = Wanted::of(node, kubelet, now)?;
        // A single bridge needs no fencing number, which saves one write for each node when a fleet reconnects.
        if self.replicated {
            wanted.metadata.set_at(&["annotations", SESSION_ANNOTATION], self.session.to_string().into());
        }
        *self.newest_node() = Some(node.to_string().into_boxed_str());
        if let Some(volumes) = &self.volumes {
            volumes.reported(name, &wanted.status["volumesInUse"]);
        }
        let path = format!("/api/v1/nodes/{name}");
        let known = *self.metadata() == Some(hash(&wanted.metadata));
        if !known {
            // The answer also shows whether the node exists: one request for the usual registration, two for the first.
            let patch = json!({"metadata": wanted.metadata});
            let found = self.requests.patch_for::<Value>(&path, Patch::Merge, &patch).await;
            if let Ok(object) = &found {
                self.saw_place(object);
            }
            match found {
                Err(error) if code(&error) == Some(404) => return self.register(&wanted).await,
                Err(error) => return Err(error.into()),
                Ok(object) => {
                    let bare = is_bare(&object);
                    if bare {
                        self.complete(&object, &wanted).await?;
                    } else {
                        self.tell_of_taints(&object, &wanted);
                    }
                    self.forget_drivers(&object).await;
                    if let Some(patch) = labels::forgetting(&object, wanted.configured.as_deref()) {
                        self.own.patch(&path, Patch::Merge, &patch).await?;
                    }
                    if !bare && news::is_known(&object["status"], &wanted.status, now) {
                        self.registered(&wanted).await;
                        self.written(object["metadata"]["resourceVersion"].as_str().unwrap_or_default());
                        return Ok(());
                    }
                }
            }
            self.registered(&wanted).await;
        }
        match self.requests.patch(&format!("{path}/status"), Patch::Strategic, &json!({"status": wanted.status})).await
        {
            Err(error) if code(&error) == Some(404) => self.register(&wanted).await,
            other => {
                self.written(&other?.metadata.resource_version);
                Ok(())
            }
        }
    }

    /// The status is in the API, at this version of the Node.
    fn written(&self, version: &str) {
        if let Some(volumes) = &self.volumes {
            volumes.written(&self.node.name, version);
        }
    }

    async fn register(&self, wanted: &Wanted) -> Result<(), Failure> {
        if !self.overrides.may_register {
            return Err(Failure::Refused(format!("the object of node {} was deleted", self.node.name)));
        }
        match self.requests.create("/api/v1/nodes", &wanted.object(&self.node.name)).await {
            // A join or an earlier report has created it meanwhile: the next attempt updates it.
            Err(error) if code(&error) == Some(409) => return Err(Failure::Changed),
            other => drop(other?),
        }
        self.registered(wanted).await;
        let notes = json!({labels::CONFIGURED_LABELS: wanted.configured});
        let role = json!({"metadata": {"labels": {ROLE_LABEL: ""}, "annotations": notes}});
        if let Err(error) = self.own.patch(&format!("/api/v1/nodes/{}", self.node.name), Patch::Merge, &role).await {
            log::warn!("node {}: its role label was not set: {error}", self.node.name);
        }
        Ok(())
    }

    /// Notes that the API has the metadata, and reports omitted labels once for each connection.
    async fn registered(&self, wanted: &Wanted) {
        *self.metadata() = Some(hash(&wanted.metadata));
        if wanted.problems.is_empty() {
            return;
        }
        let said = format!("left out of the labels of this Node: {}", wanted.problems.join("; "));
        log::warn!("node {}: {}", self.node.name, printable(&said));
        let event = node_warning(&self.node.name, "InvalidNodeLabels", &said, Timestamp::now());
        if let Err(failure) = self.write_event(&event).await {
            log::warn!("node {}: an event was lost: {failure:?}", self.node.name);
        }
    }

    /// Logs taints that are not written: a node may not change its own taints (NodeRestriction), so those of its
    /// configuration are written only when it registers.
    fn tell_of_taints(&self, object: &Value, wanted: &Wanted) {
        let missing = labels::missing_taints(object, &wanted.spec["taints"]);
        if !missing.is_empty() {
            log::info!(
                "node {name}: it is registered already, so these taints of its configuration are not written: {missing}; \
                 kubectl taint node {name} sets them",
                name = self.node.name,
                missing = printable(&missing.join(", "))
            );
        }
    }

    /// Adds what a node may not change later to an object that the join has created.
    async fn complete(&self, object: &Value, wanted: &Wanted) -> Result<(), Failure> {
        let patch = wanted.completion(object);
        match self.own.patch(&format!("/api/v1/nodes/{}", self.node.name), Patch::Merge, &patch).await {
            Err(error) if code(&error) == Some(409) => Err(Failure::Changed),
            other => Ok(other.map(drop)?),
        }
    }

    /// Notes the place of the node that its object names.
    fn saw_place(&self, object: &Value) {
        let said = |name| object["metadata"]["annotations"][name].as_str().map(str::to_owned);
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = said(LAN_ADDRESSES).zip(said(PEER_ADDRESS));
        let are_said = self.overrides.places().into_iter().all(|(name, place)| said(name).as_deref() == Some(place));
        self.places_said.store(are_said, Ordering::Relaxed);
    }

    fn metadata(&self) -> std::sync::MutexGuard<'_, Option<u64>> {
        self.metadata.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hash for comparisons within this process.
fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}
