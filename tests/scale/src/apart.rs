//! Pods with anti-affinity to each other, more of them than nodes. Measures the time to place all that find a node, and
//! to delete them.

use std::rc::Rc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::node::GROUP;
use crate::phases::{Run, say};
use crate::process;

const NAME: &str = "apart";

impl Run {
    pub(crate) async fn apart(&mut self, client: &Client) -> anyhow::Result<()> {
        let (replicas, nodes) = (self.arguments.apart, self.arguments.nodes.min(1000));
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
        let labels = json!({"app": NAME});
        let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}});
        let deployment = json!({
            "metadata": {"name": NAME},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {GROUP: "0"}, "automountServiceAccountToken": false, "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": 0,
                    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
                    "containers": [{"name": "c", "image": "docker.io/library/busybox:latest",
                        "resources": {"requests": {"cpu": "10m"}}}],
                },
            }},
        });
        let before = process::look(self.pid)?;
        let started = Instant::now();
        deployments.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?;
        let wanted = replicas.min(nodes);
        let fleet = Rc::clone(&self.fleet);
        self.until("pods apart at their nodes", || fleet.count_pods(NAME).0 >= wanted).await?;
        let arrived = started.elapsed().as_secs_f64();
        self.until("pods apart reported", || fleet.count_pods(NAME).1 >= wanted).await?;
        let reported = started.elapsed().as_secs_f64();
        // By then the scheduler has tried those that find no node.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let after = process::look(self.pid)?;
        say(&format!(
            "{replicas} pods apart on {nodes} of {} nodes: {wanted} at their nodes after {arrived:.1} s, reported after \
             {reported:.1} s; bridge CPU {:.1} s",
            self.arguments.nodes,
            after.cpu_time_since(&before).as_secs_f64()
        ));
        let started = Instant::now();
        deployments.delete(NAME, &DeleteParams::default()).await?;
        self.until("pods apart gone", || fleet.count_gone(NAME) >= wanted).await?;
        say(&format!("pods apart gone after {:.1} s", started.elapsed().as_secs_f64()));
        Ok(())
    }
}
