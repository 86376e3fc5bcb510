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
    let (client, state) = options.reach.client().await?;
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
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line() -> Line {
        let link = NodeView {
            node: "edge-1".into(),
            connected: false,
            since: None,
            last_seen: Some("2026-03-01T10:00:00Z".into()),
            epoch: 7,
            sequence: 9,
            acked: None,
            objects: 3,
            queue_bytes: 0,
            report_bytes: 12,
            rtt_ms: None,
            no_kubelet_port: false,
        };
        Line { link, known: Known { ready: "True".into(), version: "0.1.0".into(), pods: 4, pods_ready: 3 } }
    }

    fn cells(form: Option<Form>) -> String {
        let text = printed(&[line()], form, "2026-03-01T10:05:00Z".parse().unwrap()).unwrap();
        text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn table_shows_the_node_and_wide_adds_the_link() {
        assert_eq!(cells(None), "edge-1 True 0.1.0 3/4 down 5m");
        assert_eq!(cells(Some(Form::Wide)), "edge-1 True 0.1.0 3/4 down 5m - 7 9 - 3 0B 12B -");
    }

    #[test]
    fn other_forms_hold_link_and_node() {
        let text = |form| printed(&[line()], Some(form), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(text(Form::Name), "node/edge-1\n");
        let json: Value = serde_json::from_str(&text(Form::Json)).unwrap();
        assert_eq!((&json[0]["node"], &json[0]["queueBytes"]), (&json!("edge-1"), &json!(0)));
        assert_eq!((&json[0]["ready"], &json[0]["podsReady"]), (&json!("True"), &json!(3)));
    }

    #[test]
    fn ended_pods_are_not_counted() {
        let node = json!({"status": {
            "conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": "False"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0-sampan-0.1.0"},
        }});
        let mut known = of_node(&serde_json::from_value(node).unwrap());
        assert_eq!((known.ready.as_str(), known.version.as_str()), ("False", "0.1.0"));
        let ready = json!([{"type": "Ready", "status": "True"}]);
        for status in
            [json!({"phase": "Running", "conditions": ready}), json!({"phase": "Pending"}), json!({"phase": "Failed"})]
        {
            count(&mut known, &serde_json::from_value(json!({"status": status})).unwrap());
        }
        assert_eq!((known.pods, known.pods_ready), (2, 1));
    }
}
