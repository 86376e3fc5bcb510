//! `cloud-bridge nodes`: the nodes of running bridges, with what the API and the bridges know of each. Owns the question and the
//! table.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Serialize;

use crate::bridge::overview::NodeView;
use crate::bridge::requests::Requests;
use crate::flags::bridge_url;
use crate::info;
use crate::operator::{Operator, authority};
use crate::output::{Form, Structured, print, rough, table};
use crate::reach::Reach;

/// Objects of a list that the API answers with at a time.
pub(crate) const PAGE: usize = 500;

/// `nodes`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    reach: Reach,
    /// Address of a bridge, https://HOST:PORT (repeatable). Each knows its own nodes [default: the one that started last].
    #[arg(long, value_name = "URL", value_parser = bridge_url)]
    bridge: Vec<String>,
    /// Form of the list [default: a table]. `wide` adds what the link carries.
    #[arg(long, short, value_enum, value_name = "FORM", conflicts_with_all = ["json", "metrics"])]
    output: Option<Form>,
    /// Same as -o json.
    #[arg(long, conflicts_with = "metrics")]
    json: bool,
    /// Print metrics in the text format of Prometheus.
    #[arg(long)]
    metrics: bool,
}

/// What the API knows of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    /// Status of its condition Ready: True, False or Unknown. Empty without a Node object.
    ready: String,
    /// Sampan's version on it.
    version: String,
    /// Its pods that have not ended.
    pods: usize,
    /// Those of them that are ready.
    pods_ready: usize,
}

/// One node as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    link: NodeView,
    #[serde(flatten)]
    known: Known,
}

/// Asks and prints.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let (client, state) = options.reach.running().await?;
    let authority = authority(&client, state.as_deref()).await?;
    let mut bridges = options.bridge;
    if bridges.is_empty() {
        bridges.push(info::known(&client).await?.url);
    }
    let mut links: Vec<NodeView> = Vec::new();
    for bridge in &bridges {
        let of_bridge = || format!("bridge {bridge}");
        let operator = Operator::new(&authority, bridge).with_context(of_bridge)?;
        if options.metrics {
            print(&operator.get("/metrics").await.with_context(of_bridge)?)?;
        } else {
            let text = operator.get("/v1/nodes").await.with_context(of_bridge)?;
            let more: Vec<NodeView> = serde_json::from_str(&text).with_context(of_bridge)?;
            links.extend(more);
        }
    }
    if options.metrics {
        return Ok(());
    }
    let mut known = known(&client).await?;
    let lines: Vec<Line> =
        links.into_iter().map(|link| Line { known: known.remove(&link.node).unwrap_or_default(), link }).collect();
    let form = options.output.or(options.json.then_some(Form::Json));
    print(&printed(&lines, form, apimachinery::clock::timestamp())?)
}

async fn known(client: &kube::Client) -> anyhow::Result<HashMap<String, Known>> {
    let mut all: HashMap<String, Known> = HashMap::new();
    let see_node = |node: Node| {
        let name = node.metadata.name.clone().unwrap_or_default();
        all.insert(name, of_node(&node));
        true
    };
    let requests = Requests::new(client.clone());
    requests.each("/api/v1/nodes", "", PAGE, see_node).await.context("listing nodes")?;
    let see_pod = |pod: Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if let Some(known) = node.and_then(|node| all.get_mut(node)) {
            count(known, &pod);
        }
        true
    };
    requests.each("/api/v1/pods", "", PAGE, see_pod).await.context("listing pods")?;
    Ok(all)
}

/// Status of the condition Ready: True, False or Unknown.
pub(crate) fn readiness(node: &Node) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|one| one.type_ == "Ready"));
    ready.map_or("Unknown", |ready| ready.status.as_str()).to_owned()
}

fn of_node(node: &Node) -> Known {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let kubelet = info.map_or("", |info| info.kubelet_version.as_str());
    Known { ready: readiness(node), version: crate::page::own_version(kubelet).to_owned(), ..Known::default() }
}

fn count(known: &mut Known, pod: &Pod) {
    let Some(status) = &pod.status else { return };
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return;
    }
    let ready = status.conditions.as_ref().and_then(|all| all.iter().find(|one| one.type_ == "Ready"));
    known.pods += 1;
    known.pods_ready += usize::from(ready.is_some_and(|ready| ready.status == "True"));
}

fn printed(lines: &[Line], form: Option<Form>, now: Timestamp) -> anyhow::Result<String> {
    match form {
        Some(Form::Json) => Structured::Json.text(&lines),
        Some(Form::Yaml) => Structured::Yaml.text(&lines),
        Some(Form::Name) => Ok(lines.iter().map(|line| format!("node/{}\n", line.link.node)).collect()),
        Some(Form::Wide) => Ok(table(&rows(lines, true, now))),
        None => Ok(table(&rows(lines, false, now))),
    }
}

fn rows(lines: &[Line], wide: bool, now: Timestamp) -> Vec<Vec<String>> {
    let mut head = vec!["NAME", "READY", "VERSION", "PODS", "LINK", "SEEN"];
    if wide {
        head.extend(["CONNECTED-AT", "EPOCH", "SEQUENCE", "ACKED", "OBJECTS", "QUEUE", "REPORTS", "RTT"]);
    }
    let or_dash = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
    let since = |time: &str| {
        let then = time.parse::<Timestamp>().ok()?;
        Some(rough(Duration::from_secs(u64::try_from(now.as_second() - then.as_second()).unwrap_or(0))))
    };
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(lines.iter().map(|Line { link, known }| {
        let mut row = vec![
            link.node.clone(),
            or_dash(Some(known.ready.clone())),
            or_dash(Some(known.version.clone())),
            format!("{}/{}", known.pods_ready, known.pods),
            if link.connected { "up" } else { "down" }.to_owned(),
            or_dash(link.last_seen.as_deref().and_then(since)),
        ];
        if wide {
            row.extend([
                or_dash(link.since.clone()),
                link.epoch.to_string(),
                link.sequence.to_string(),
                or_dash(link.acked.map(|acked| acked.to_string())),
                link.objects.to_string(),
                format!("{}B", link.queue_bytes),
                format!("{}B", link.report_bytes),
                or_dash(link.rtt_ms.map(|rtt| format!("{rtt}ms"))),
            ]);
        }
        row
    }));
    rows
}

#[cfg(test)]
mod tests;
