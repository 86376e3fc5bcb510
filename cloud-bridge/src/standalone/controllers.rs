//! The controllers of a site, as tasks of this process.

use std::sync::Arc;

use apimachinery::panics;
use controller_manager::node_lifecycle;
use controller_manager::pods::Pods;
use controller_manager::{attach_detach, load_balancer, local_volumes, podautoscaler, scheduler, workloads};
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use super::options::Options;
use crate::bridge::{BRIDGED_LABEL, Bridge};
use crate::certificates;
use crate::pki::authority::Authority;
use crate::steps;

impl local_volumes::Nodes for Bridge {
    fn delete_volume<'a>(&'a self, node: &'a str, volume: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move { Self::delete_volume(self, node, volume).await.map_err(|error| error.to_string()) })
    }
}

/// The controllers of the embedded API, each in its own task: the work of one delays no other. Dropping this stops
/// them.
pub(super) struct Controllers(pub(super) JoinSet<()>);

impl Controllers {
    pub(super) fn start(
        options: &Options,
        client: &impl Fn(&'static str) -> kube::Client,
        lifecycle: node_lifecycle::Settings,
        authority: &Arc<Authority>,
        bridge: &Bridge,
    ) -> Self {
        let mut all = Self(JoinSet::new());
        let workloads = workloads::Options { terminated_pod_gc_threshold: options.terminated_pod_gc_threshold };
        let (authority, bridge, autoscalers) = (Arc::clone(authority), bridge.clone(), options.autoscalers.options());
        let manager = client("kube-controller-manager");
        let pods = Pods::start(&manager);
        let followed = pods.clone();
        let attached = pods.clone();
        let of_workloads = move |client| workloads::run(client, followed.clone(), workloads.clone());
        all.keep("the controllers of workloads", &manager, of_workloads);
        all.keep("the signer", &manager, move |client| certificates::run(client, Arc::clone(&authority)));
        all.keep("the end of volumes", &manager, move |client| local_volumes::run(client, Arc::new(bridge.clone())));
        let attach = move |client| attach_detach::run(client, attached.clone());
        all.keep("the attachments of volumes", &manager, attach);
        if options.load_balancer.is_some() {
            all.keep("load balancers", &manager, load_balancer::run);
        }
        all.keep("the autoscaler", &manager, move |client| podautoscaler::run(client, autoscalers));
        all.keep("the scheduler", &client("kube-scheduler"), move |client| scheduler::run(client, pods.clone()));
        let lifecycle = move |client| node_lifecycle::run(client, BRIDGED_LABEL, lifecycle.clone());
        all.keep("the node lifecycle", &manager, lifecycle);
        all
    }

    /// Same as [`panics::keep`], measured by its name.
    fn keep<F>(
        &mut self,
        work: &'static str,
        client: &kube::Client,
        mut begin: impl FnMut(kube::Client) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let client = client.clone();
        self.0.spawn(steps::part(work, panics::keep(work, move || begin(client.clone()))));
    }
}
