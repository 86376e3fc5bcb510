//! Statuses if several bridges serve one API: a write of an old connection must not replace what the node has reported
//! through another bridge since.
//!
//! Each connection claims the node before its first status, by its fencing number on the Node object. A status is then
//! written in three steps: read the pod's resourceVersion, check that the Node has no higher number, write on that
//! version. The check sees a connection that has claimed before. One that claims later and writes changes the pod's
//! version, and the API refuses this write.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::failure::Failure;
use super::{Reports, pod, session_of};
use crate::bridge::requests::{Patch, Written, code};
use crate::bridge::well_known::SESSION_ANNOTATION;

impl Reports {
    pub(super) async fn fenced_status(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        status: &Value,
    ) -> Result<(), Failure> {
        self.claim().await?;
        let version = match self.requests.get::<Written>(&pod::path(namespace, name)?).await {
            Ok(found) if found.metadata.uid == uid => Some(found.metadata.resource_version),
            // The pod is not this node's; the API answers why.
            Ok(_) | Err(kube::Error::Api(_)) => None,
            Err(error) => return Err(error.into()),
        };
        if !self.is_newest().await? {
            return Err(Failure::Fenced);
        }
        pod::status(&self.requests, version, namespace, name, uid, status).await
    }

    /// Whether this connection may write objects without a version check: no newer connection has claimed the node.
    pub(in crate::bridge) async fn leads(&self) -> Result<bool, String> {
        if !self.replicated {
            return Ok(true);
        }
        match self.claim().await {
            Ok(()) => self.is_newest().await.map_err(|error| error.to_string()),
            Err(Failure::Fenced) => Ok(false),
            Err(Failure::Changed) => Err("its Node was changed meanwhile".to_owned()),
            Err(Failure::Refused(why)) => Err(why),
            Err(Failure::Api(error)) => Err(error.to_string()),
        }
    }

    async fn claim(&self) -> Result<(), Failure> {
        if self.claimed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let path = format!("/api/v1/nodes/{}", self.node.name);
        let node: Written = match self.requests.get(&path).await {
            // The node is not registered, so no other bridge has it either.
            Err(error) if code(&error) == Some(404) => return Ok(()),
            found => found?,
        };
        let found = session_of(&node);
        if found > self.session {
            return Err(Failure::Fenced);
        }
        if found != self.session {
            let metadata = json!({
                "resourceVersion": node.metadata.resource_version,
                "annotations": {SESSION_ANNOTATION: self.session.to_string()},
            });
            match self.requests.patch(&path, Patch::Merge, &json!({"metadata": metadata})).await {
                Err(error) if code(&error) == Some(409) => return Err(Failure::Changed),
                other => drop(other?),
            }
        }
        self.claimed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fencing_number_is_read_from_a_node() {
        let number = |metadata: Value| {
            let node: Written =
                serde_json::from_value(json!({"metadata": metadata, "status": {"images": [1]}})).unwrap();
            session_of(&node)
        };
        assert_eq!(number(json!({"annotations": {SESSION_ANNOTATION: "7"}})), 7);
        for without in [json!({}), json!({"annotations": {}}), json!({"annotations": {SESSION_ANNOTATION: "x"}})] {
            assert_eq!(number(without), 0);
        }
    }
}
