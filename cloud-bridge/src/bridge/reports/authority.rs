//! What a node may report about: itself, the pods bound to it, and the objects that those name. The bridge checks this
//! before the node authorizer of the API server does.

use std::collections::VecDeque;
use std::sync::{MutexGuard, PoisonError};

use edge_protocol::message::{ObjectKey, Report};
use serde_json::Value;

use super::Reports;
use super::failure::Failure;
use super::mirror::place;
use crate::bridge::requests::{code, is_path_segment};

/// Maximum number of deleted pods of one connection about which events are still accepted.
const TOLD_OF: usize = 128;

impl Reports {
    /// Refuses a report about an object of another node.
    pub(super) async fn authorize(&self, report: &Report) -> Result<(), Failure> {
        match report {
            Report::PodStatus { namespace, name, .. }
            | Report::PodGone { namespace, name, .. }
            | Report::MirrorGone { namespace, name, .. } => self.check("Pod", namespace, name, false).await,
            Report::Event { event } => {
                let involved = &event["involvedObject"];
                let text = |field: &str| involved[field].as_str().unwrap_or_default();
                self.check(text("kind"), text("namespace"), text("name"), true).await
            }
            // Checked where these reports are read; orders in `jobs`.
            Report::Node { .. }
            | Report::MirrorPod { .. }
            | Report::Order { .. }
            | Report::CsiNode { .. }
            | Report::Unknown => Ok(()),
        }
    }

    async fn check(&self, kind: &str, namespace: &str, name: &str, is_event: bool) -> Result<(), Failure> {
        let refused = || Failure::Refused(format!("{kind} {namespace}/{name} is not of node {}", self.node.name));
        let key = ObjectKey { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() };
        // A Node has no namespace, but some components write the default one into its events.
        let itself = kind == "Node" && name == self.node.name && matches!(namespace, "" | "default");
        if itself {
            return Ok(());
        }
        if self.node.state().holds(&key) {
            self.note(key);
            return Ok(());
        }
        if kind != "Pod" || !is_path_segment(namespace) || !is_path_segment(name) {
            return Err(refused());
        }
        // It may be unknown here because it was deleted, or because the first list is still being read.
        match self.own.get::<Value>(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await {
            Ok(pod) if pod["spec"]["nodeName"] == self.node.name.as_str() => {
                self.note(key);
                Ok(())
            }
            Ok(_) => Err(refused()),
            // A late report about a deleted pod changes nothing, but an event would still be created.
            Err(error) if code(&error) == Some(404) && (!is_event || self.had(&key)) => Ok(()),
            Err(error) if code(&error) == Some(404) => Err(Failure::Refused(format!(
                "there is no Pod {namespace}/{name}, and node {} had none",
                self.node.name
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that the node has this pod, and may report its end.
    fn note(&self, pod: ObjectKey) {
        let mut told_of = self.told_of();
        if pod.kind == "Pod" && !told_of.contains(&pod) {
            if told_of.len() >= TOLD_OF {
                told_of.pop_front();
            }
            told_of.push_back(pod);
        }
    }

    /// Whether this connection has reported about the pod, or created its mirror.
    fn had(&self, pod: &ObjectKey) -> bool {
        self.told_of().contains(pod) || self.mirrors().contains(&place(&pod.namespace, &pod.name))
    }

    fn told_of(&self) -> MutexGuard<'_, VecDeque<ObjectKey>> {
        self.told_of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
