//! `cloud-bridge nodes`: asks running bridges how their nodes are. Owns the question and the table.

use std::io::Write;

use anyhow::Context;
use clap::Args;
use http::Request;

use crate::bridge::overview::NodeView;
use crate::info;
use crate::listen::OPERATORS;
use crate::pki::authority::{Authority, to_pem};
use crate::pki::keep;
use crate::reach::Reach;

/// `nodes`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    reach: Reach,
    /// URL of a bridge (repeatable); absent: of the one that started last. Each knows its own nodes.
    #[arg(long)]
    bridge: Vec<String>,
    /// Prints JSON.
    #[arg(long, conflicts_with = "metrics")]
    json: bool,
    /// Prints metrics in the text format of Prometheus.
    #[arg(long)]
    metrics: bool,
}

/// Asks and prints.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let (client, state) = options.reach.client().await?;
    // A user who can read the authority's key controls the bridge anyway: making a certificate adds no right.
    let authority = match &state {
        Some(state) => keep::in_folder(state)?,
        None => keep::in_cluster(&client).await?,
    };
    let mut bridges = options.bridge;
    if bridges.is_empty() {
        bridges.push(info::read(&client).await.context("asking the API about its bridge (has it ever run?)")?.url);
    }
    let path = if options.metrics { "/metrics" } else { "/v1/nodes" };
    let mut nodes: Vec<NodeView> = Vec::new();
    for bridge in &bridges {
        let text = ask(&authority, bridge, path).await.with_context(|| format!("bridge {bridge}"))?;
        if options.metrics {
            std::io::stdout().write_all(text.as_bytes()).context("stdout")?;
        } else {
            let more: Vec<NodeView> = serde_json::from_str(&text).with_context(|| format!("bridge {bridge}"))?;
            nodes.extend(more);
        }
    }
    let text = match (options.metrics, options.json) {
        (true, _) => return Ok(()),
        (_, true) => serde_json::to_string_pretty(&nodes)? + "\n",
        _ => table(&nodes),
    };
    std::io::stdout().write_all(text.as_bytes()).context("stdout")
}

async fn ask(authority: &Authority, bridge: &str, path: &str) -> anyhow::Result<String> {
    let signed = authority.client("cloud-bridge-nodes", OPERATORS)?;
    let pem = to_pem("CERTIFICATE", &signed.certificate) + &to_pem("PRIVATE KEY", signed.key.secret_der());
    let mut config = kube::Config::new(bridge.parse()?);
    config.root_cert = Some(vec![authority.certificate().to_vec()]);
    config.auth_info.client_certificate_data = Some(base64(&pem));
    config.auth_info.client_key_data = Some(base64(&pem).into());
    let client = kube::Client::try_from(config)?;
    Ok(client.request_text(Request::get(path).body(Vec::new())?).await?)
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn table(nodes: &[NodeView]) -> String {
    let mut rows = vec![
        ["NODE", "CONNECTED", "LAST SEEN", "EPOCH", "SEQUENCE", "ACKED", "OBJECTS", "QUEUE", "REPORTS", "RTT"]
            .map(str::to_owned),
    ];
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    rows.extend(nodes.iter().map(|node| {
        [
            node.node.clone(),
            if node.connected { "yes" } else { "no" }.to_owned(),
            or_dash(node.last_seen.clone()),
            node.epoch.to_string(),
            node.sequence.to_string(),
            or_dash(node.acked.map(|acked| acked.to_string())),
            node.objects.to_string(),
            format!("{} B", node.queue_bytes),
            format!("{} B", node.report_bytes),
            or_dash(node.rtt_ms.map(|rtt| format!("{rtt} ms"))),
        ]
    }));
    let widths: [usize; 10] = std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    rows.iter().fold(String::new(), |mut text, row| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g30_the_table_shows_what_is_known() {
        let node = NodeView {
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
        };
        let text = table(&[node]);
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells, "edge-1 no 2026-03-01T10:00:00Z 7 9 - 3 0 B 12 B -".split(' ').collect::<Vec<_>>());
    }
}
