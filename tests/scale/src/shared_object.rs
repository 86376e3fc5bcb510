//! One large ConfigMap that a pod on every node names: created, sent to all, changed once and sent to all again.
//! Measures the cost for the bridge, and whether any node's heartbeat, Lease or readiness suffers meanwhile.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::node::{REVISION, SHARED as NAME};
use crate::phases::{Run, pod, say};
use crate::process;

/// All data of a ConfigMap together may have 1 MiB (K8s `MaxSecretSize`).
const LIMIT: usize = 1 << 20;
const PAGE: u32 = 500;

impl Run {
    /// Gives every node a pod that names it, then changes it once.
    pub(crate) async fn shared_object(&mut self, client: &Client) -> anyhow::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        maps.create(&PostParams::default(), &serde_json::from_value(self.object(1))?).await?;
        self.told("a large object told to all", 1, Box::pin(self.bind_all())).await?;
        let changed = self.object(2);
        let change = async {
            maps.patch(NAME, &PatchParams::default(), &Patch::Merge(&changed)).await?;
            Ok(())
        };
        self.told("a large object changed once", 2, Box::pin(change)).await?;
        self.suffered(client).await
    }

    /// Text that compresses badly: the most expensive case.
    fn object(&self, revision: u32) -> serde_json::Value {
        let room = self.arguments.shared_kib.saturating_mul(1024).min(LIMIT - REVISION.len() - "text".len() - 10);
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
        let letter = |_| char::from(letters[(self.fleet.random() >> 33) as usize % letters.len()]);
        let text: String = (0..room).map(letter).collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME},
               "data": {"text": text, REVISION: revision.to_string()}})
    }

    async fn bind_all(&self) -> anyhow::Result<()> {
        let prefix = &self.arguments.prefix;
        let create = |node: usize| async move {
            let mut pod = pod(&format!("{prefix}-{node:05}-large"), &format!("{prefix}-{node:05}"))?;
            if let Some(spec) = &mut pod.spec {
                let volume = json!({"name": "large", "configMap": {"name": NAME}});
                spec.volumes = Some(vec![serde_json::from_value(volume)?]);
            }
            self.pods.create(&PostParams::default(), &pod).await.map(drop).map_err(anyhow::Error::from)
        };
        let mut creating = futures::stream::iter(0..self.arguments.nodes).map(create).buffer_unordered(32);
        while let Some(created) = creating.next().await {
            created?;
        }
        Ok(())
    }

    /// Executes the change, waits until every node holds the revision, and reports the cost.
    async fn told(
        &self,
        what: &str,
        revision: u32,
        cause: LocalBoxFuture<'_, anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        process::forget_peak(self.pid);
        let (before, lost, started) = (process::look(self.pid)?, self.fleet.count_lost(), Instant::now());
        self.fleet.forget_silence();
        cause.await?;
        let caused = started.elapsed().as_secs_f64();
        let (fleet, all) = (Rc::clone(&self.fleet), self.arguments.nodes);
        self.until(what, || fleet.count_holders(revision) >= all).await?;
        let took = started.elapsed().as_secs_f64();
        // A node that is silent now is detected at the next heartbeat.
        tokio::time::sleep(Duration::from_secs(20)).await;
        let after = process::look(self.pid)?;
        say(&format!(
            "{what}: {all} nodes hold it after {took:.1} s ({caused:.1} s of these to ask for it), bridge CPU {:.1} s, \
             peak rss {} KiB, now rss {} KiB, pss {} KiB",
            after.cpu_time_since(&before).as_secs_f64(),
            after.peak,
            after.rss,
            after.pss
        ));
        say(&format!(
            "{what}: {} connections lost, longest silence of the bridge towards a node {:.1} s (heartbeats each 15 s, \
             a connection ends after 30 s), swarm's own CPU {:.1} s since its start",
            self.fleet.count_lost() - lost,
            self.fleet.longest_silence().as_secs_f64(),
            process::look(std::process::id())?.cpu_time().as_secs_f64(),
        ));
        Ok(())
    }

    /// Counts old Leases, and nodes that are not ready.
    async fn suffered(&self, client: &Client) -> anyhow::Result<()> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
        let nodes: Api<Node> = Api::all(client.clone());
        let now = Timestamp::now();
        let age = |lease: &Lease| {
            let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
            renewed.map_or(f64::INFINITY, |time| now.duration_since(time.0).as_secs_f64())
        };
        let ready = |node: &Node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        let (mut oldest, mut not_ready, mut page) = (0.0_f64, 0, ListParams::default().limit(PAGE));
        loop {
            let list = leases.list(&page).await.context("listing Leases")?;
            oldest = list.items.iter().map(age).fold(oldest, f64::max);
            let Some(next) = list.metadata.continue_.filter(|next| !next.is_empty()) else { break };
            page = page.continue_token(&next);
        }
        page = ListParams::default().limit(PAGE);
        loop {
            let list = nodes.list(&page).await.context("listing nodes")?;
            not_ready += list.items.iter().filter(|node| !ready(node)).count();
            let Some(next) = list.metadata.continue_.filter(|next| !next.is_empty()) else { break };
            page = page.continue_token(&next);
        }
        say(&format!(
            "after the large object: oldest Lease renewed {oldest:.1} s ago (40 s allowed), {not_ready} nodes not ready"
        ));
        Ok(())
    }
}
