//! What a node may speak of: itself, the pods bound to it, and what those name. The bridge's own lock, before that of the
//! API server's node authorizer.

use edge_protocol::message::{ObjectKey, Report};
use serde_json::Value;

use super::{Failure, Reports, code};
use crate::bridge::requests::is_path_segment;

impl Reports {
    /// Refuses a report about something that is another's.
    pub(super) async fn authorize(&self, report: &Report) -> Result<(), Failure> {
        match report {
            Report::PodStatus { namespace, name, .. }
            | Report::PodGone { namespace, name, .. }
            | Report::MirrorGone { namespace, name, .. } => self.check("Pod", namespace, name).await,
            Report::Event { event } => {
                let involved = &event["involvedObject"];
                let text = |field: &str| involved[field].as_str().unwrap_or_default();
                self.check(text("kind"), text("namespace"), text("name")).await
            }
            // Checked where they are read; of orders in `jobs`.
            Report::Node { .. } | Report::MirrorPod { .. } | Report::Order { .. } | Report::Unknown => Ok(()),
        }
    }

    async fn check(&self, kind: &str, namespace: &str, name: &str) -> Result<(), Failure> {
        let refused = || Failure::Refused(format!("{kind} {namespace}/{name} is not of node {}", self.node.name));
        let key = ObjectKey { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() };
        // A Node lies in no namespace; some components say the default one of its events all the same.
        let itself = kind == "Node" && name == self.node.name && matches!(namespace, "" | "default");
        if itself || self.node.state().holds(&key) {
            return Ok(());
        }
        if kind != "Pod" || !is_path_segment(namespace) || !is_path_segment(name) {
            return Err(refused());
        }
        // It may be unknown here because it was deleted, or because the first list is still being read.
        match self.own.get::<Value>(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await {
            Ok(pod) if pod["spec"]["nodeName"] == self.node.name.as_str() => Ok(()),
            Ok(_) => Err(refused()),
            Err(error) if code(&error) == Some(404) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
