//! The pods of a cluster, watched and read once for all controllers of a process that need all of them.

use std::sync::Arc;

use apimachinery::key::ObjectKey;
use apimachinery::pace::in_slices;
use apimachinery::panics;
use apimachinery::typed::{self, Misfit};
use k8s_openapi::api::core::v1 as core;
use kube::Client;
use kube::api::{Api, ApiResource};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::followers::{Follower, Followers, Named};
use crate::scheduler::pod::Pod as Placing;
use crate::watch;
use crate::workloads::pod::Pod as Working;

/// The watch of pods. It ends with the last clone.
#[derive(Debug, Clone)]
pub struct Pods {
    followers: Arc<Followers<Pod>>,
    _task: Arc<JoinSet<()>>,
}

/// A pod, read for all that follow.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    /// The pod as the controllers of workloads use it.
    pub(crate) working: Working,
    /// The fields that affect scheduling.
    pub(crate) placing: Arc<Placing>,
    /// Length of its JSON without `managedFields`, which are not kept.
    bytes: usize,
}

impl Pod {
    pub(crate) fn read(object: &Value, bytes: usize) -> Result<Self, Misfit> {
        let mut working: Working = typed::read(object)?;
        working.strip();
        let placing = Arc::new(Placing::read(&working.metadata, object));
        Ok(Self { working, placing, bytes })
    }
}

impl Named for Pod {
    fn key(&self) -> ObjectKey {
        let meta = &self.working.metadata;
        ObjectKey { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
    }

    fn cost(&self) -> usize {
        self.bytes
    }
}

impl Pods {
    /// Watches in a separate task, while any controller follows.
    pub fn start(client: &Client) -> Self {
        let followers = Arc::<Followers<Pod>>::default();
        let (client, told) = (client.clone(), Arc::clone(&followers));
        let mut task = JoinSet::new();
        task.spawn(async move {
            panics::keep("the watch of pods", || run(client.clone(), Arc::clone(&told))).await;
        });
        Self { followers, _task: Arc::new(task) }
    }

    /// What happens to pods, from a list of all of them on.
    pub(crate) fn follow(&self) -> Follower<Pod> {
        self.followers.join()
    }
}

async fn run(client: Client, followers: Arc<Followers<Pod>>) {
    let kind = ApiResource::erase::<core::Pod>(&());
    let begin = move || {
        let all = Api::all_with(client.clone(), &kind);
        in_slices(watch::measured(all, |event| watch::map(event, |(object, bytes)| Pod::read(&object, bytes))))
    };
    followers.watch("pods", begin).await;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_is_read_for_all_controllers_at_once() {
        let object = json!({
            "metadata": {"namespace": "ns", "name": "a", "labels": {"app": "web"}, "annotations": {"long": "text"}},
            "spec": {"nodeName": "n", "priority": 7, "containers": [{"name": "c"}]},
        });
        let pod = Pod::read(&object, 99).unwrap();
        assert_eq!(pod.cost(), 99);
        assert_eq!(pod.key(), ObjectKey { namespace: "ns".to_owned(), name: "a".to_owned() });
        assert_eq!(pod.working.metadata.annotations, None, "no controller reads them");
        assert_eq!(pod.working.spec.node_name.as_deref(), Some("n"));
        assert!(format!("{:?}", pod.placing).contains("priority: 7"));
        assert!(Pod::read(&json!({"metadata": {"name": 1}}), 22).is_err());
    }
}
