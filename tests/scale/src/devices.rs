//! Devices at all nodes: they are created, sent to their nodes, and each reports a new value at its interval. Measures
//! the cost for the bridge, compared with the same nodes without devices.

use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;

use crate::phases::{Run, say};
use crate::process;

const MODEL: &str = "swarm";

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("devices.kubeedge.io", "v1beta1", kind);
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind))
}

impl Run {
    pub(crate) async fn devices(&mut self, client: &Client) -> anyhow::Result<()> {
        let (before, started) = (process::look(self.pid)?, Instant::now());
        self.create_devices(client).await?;
        let (fleet, all) = (Rc::clone(&self.fleet), self.arguments.nodes * self.arguments.devices_per_node);
        self.until("all nodes hold their devices", || fleet.count_devices() >= all).await?;
        let told = started.elapsed().as_secs_f64();
        let fleet = Rc::clone(&self.fleet);
        self.until("each device is in the API", || fleet.count_device_reports() >= all as u64).await?;
        let after = process::look(self.pid)?;
        say(&format!(
            "{all} devices made and told to their nodes in {told:.1} s, each with a status after {:.1} s, bridge CPU {:.1} s",
            started.elapsed().as_secs_f64(),
            after.cpu_time_since(&before).as_secs_f64()
        ));
        tokio::time::sleep(Duration::from_secs(30)).await;
        let (first, reports, started) = (process::look(self.pid)?, self.fleet.count_device_reports(), Instant::now());
        tokio::time::sleep(Duration::from_secs(self.arguments.idle)).await;
        let last = process::look(self.pid)?;
        let reports = self.fleet.count_device_reports() - reports;
        say(&format!(
            "{all} devices, {:.1} values/s into the API: CPU {:.1} % of a core, rss {} KiB, pss {} KiB, {} KiB more than without",
            reports as f64 / started.elapsed().as_secs_f64(),
            last.cpu_since(&first),
            last.rss,
            last.pss,
            last.pss.saturating_sub(before.pss),
        ));
        Ok(())
    }

    async fn create_devices(&self, client: &Client) -> anyhow::Result<()> {
        let property = |name: &str, access: &str| json!({"name": name, "type": "FLOAT", "accessMode": access});
        let model = json!({
            "apiVersion": "devices.kubeedge.io/v1beta1", "kind": "DeviceModel", "metadata": {"name": MODEL},
            "spec": {"properties": [property("temp", "ReadOnly"), property("target", "ReadWrite")]},
        });
        api(client, "DeviceModel").create(&PostParams::default(), &serde_json::from_value(model)?).await?;
        let devices = api(client, "Device");
        let (nodes, prefix) = (self.arguments.nodes, &self.arguments.prefix);
        let all = (0..self.arguments.devices_per_node).flat_map(|number| (0..nodes).map(move |node| (node, number)));
        let create = |(node, number): (usize, usize)| {
            let node = format!("{prefix}-{node:05}");
            let device = json!({
                "apiVersion": "devices.kubeedge.io/v1beta1", "kind": "Device",
                "metadata": {"name": format!("{node}-{number}")},
                "spec": {"deviceModelRef": {"name": MODEL}, "nodeName": node, "properties": [
                    {"name": "temp", "reportToCloud": true}, {"name": "target", "desired": {"value": "20"}},
                ]},
            });
            let devices = devices.clone();
            async move {
                let device = serde_json::from_value(device)?;
                devices.create(&PostParams::default(), &device).await.map(drop).map_err(anyhow::Error::from)
            }
        };
        let mut creating = futures::stream::iter(all).map(create).buffer_unordered(32);
        while let Some(created) = creating.next().await {
            created?;
        }
        Ok(())
    }
}
