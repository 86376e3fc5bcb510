//! What is wrong with a running bridge, from what was seen of it. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::{Facts, Refused};
use crate::bridge::overview::NodeView;
use crate::doctor::finding::Finding;
use crate::info::{Info, is_loopback};
use crate::output::rough;

/// Nodes that a finding names.
const NAMED: usize = 10;
const LOG: &str = "systemctl status cloud-bridge; journalctl -u cloud-bridge -e";

pub(in crate::doctor) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(facts.info.as_ref().map(|info| api(info, facts.standalone)));
    found.extend(facts.ready.as_ref().map(|ready| port(ready, &facts.url)));
    if let Some(metrics) = &facts.metrics {
        found.extend(process(metrics));
        found.extend(nodes(facts));
        found.extend(kubelet_ports(facts.links.as_deref().unwrap_or_default()));
    }
    found
}

fn api(info: &Result<Info, String>, standalone: bool) -> Finding {
    match (info, standalone) {
        (Err(why_not), true) => {
            let why = "kubectl does not work, and nothing new reaches the nodes; their pods go on";
            Finding::error("api", format!("the API of the bridge does not answer: {why_not}"), why, LOG)
        }
        (Err(why_not), false) => {
            let why = "nothing new reaches the nodes; their pods go on";
            let cure = "kubectl get --raw /readyz with the same kubeconfig; kubectl -n sampan-system get configmap bridge-info";
            Finding::error("api", format!("the cluster does not tell of its bridge: {why_not}"), why, cure)
        }
        (Ok(Info { api: Some(api), .. }), _) if is_loopback(api) => {
            Finding::info("api", format!("answers; only this machine reaches it ({api}), see --api-listen"))
        }
        (Ok(_), _) => Finding::ok("api", "answers"),
    }
}

fn port(ready: &Result<(), Refused>, url: &str) -> Finding {
    match ready {
        Ok(()) => Finding::ok("bridge", format!("answers nodes at {url}")),
        Err(Refused::NotReady(why_not)) => {
            let why = "nothing new reaches the nodes; their pods go on";
            Finding::error("bridge", format!("{url} is not ready: {why_not}"), why, LOG)
        }
        Err(Refused::Unreached(why_not)) => {
            let why = "nodes connect to this address";
            let cure = format!("{LOG}; see that --advertise names this machine, and that no firewall drops its port");
            Finding::error("bridge", format!("{url} does not answer: {why_not}"), why, cure)
        }
    }
}

fn process(metrics: &str) -> Vec<Finding> {
    let value = |name: &str| -> Option<f64> {
        metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    let mut found = Vec::new();
    let version =
        metrics.lines().find_map(|line| line.strip_prefix("sampan_bridge_info{version=\"")?.split('"').next());
    let own = env!("CARGO_PKG_VERSION");
    found.push(match version {
        Some(runs) if runs != own => Finding::warning(
            "drift",
            format!("version {runs} runs, and {own} is installed"),
            "what the new version corrects is not in force",
            "systemctl restart cloud-bridge; nodes reconnect, and their pods go on",
        ),
        _ => Finding::ok("drift", format!("version {own} runs")),
    });
    let panics = value("sampan_bridge_panics_total").unwrap_or_default();
    found.push(if panics > 0.0 {
        let what = format!("{panics} panics since its start");
        let why = "each has ended a connection or request, and is a fault of this program";
        Finding::warning("panics", what, why, "journalctl -u cloud-bridge | grep -A3 panic; report it")
    } else {
        Finding::ok("panics", "none since its start")
    });
    if let (Some(open), Some(most)) = (value("process_open_fds"), value("process_max_fds")) {
        let what = format!("{open} of {most} file descriptors are open");
        found.push(if open > most * 0.8 {
            let why = "each node takes one; a bridge without descriptors refuses nodes";
            Finding::warning("descriptors", what, why, "a higher LimitNOFILE= by systemctl edit cloud-bridge")
        } else {
            Finding::ok("descriptors", what)
        });
    }
    found
}

/// A node that is connected to another bridge is ready, so it counts as present.
fn nodes(facts: &Facts) -> Vec<Finding> {
    let (Some(links), Some(nodes)) = (&facts.links, &facts.nodes) else {
        let who = if facts.links.is_none() { "the bridge" } else { "the API" };
        let what = format!("{who} does not list the nodes");
        let cure = format!("kubectl get nodes with the same kubeconfig; {LOG}");
        return vec![Finding::warning("nodes", what, "nodes may be offline unnoticed", cure)];
    };
    let seen = |link: &NodeView| {
        let then: Option<Timestamp> = link.last_seen.as_deref().and_then(|time| time.parse().ok());
        let seconds = then.map(|then| u64::try_from(facts.now.as_second() - then.as_second()).unwrap_or(0));
        seconds.map_or("never seen".to_owned(), |seconds| format!("seen {} ago", rough(Duration::from_secs(seconds))))
    };
    let not_ready = |link: &&NodeView| nodes.get(&link.node).is_some_and(|ready| ready != "True");
    let (on, off): (Vec<&NodeView>, Vec<&NodeView>) = links.iter().filter(not_ready).partition(|link| link.connected);
    let mut found = Vec::new();
    if !off.is_empty() {
        let names = some(off.iter().map(|link| format!("{} ({})", link.node, seen(link))));
        let what = format!("{} of {} nodes are offline: {names}", off.len(), nodes.len());
        let why = "nothing new reaches them; their pods go on";
        let cure = "on the device: edge-runtime doctor. A device that is gone for good: kubectl delete node NAME";
        found.push(Finding::warning("nodes", what, why, cure));
    }
    if !on.is_empty() {
        let names = some(on.iter().map(|link| link.node.clone()));
        let what = format!("{} of {} nodes are connected and not ready: {names}", on.len(), nodes.len());
        let why = "they get no new pods";
        found.push(Finding::warning(
            "nodes",
            what,
            why,
            "kubectl describe node NAME; on the device: edge-runtime doctor",
        ));
    }
    if found.is_empty() {
        found.push(Finding::ok("nodes", format!("all {} are ready", nodes.len())));
    }
    found
}

/// Nodes whose kubelet API has no port, as other programs have all ports of the range.
fn kubelet_ports(links: &[NodeView]) -> Option<Finding> {
    let without: Vec<&NodeView> = links.iter().filter(|link| link.no_kubelet_port).collect();
    (!without.is_empty()).then(|| {
        let names = some(without.iter().map(|link| link.node.clone()));
        let what = format!("no port is free for the kubelet API of {names}");
        let why = "kubectl logs, exec, port-forward and top do not reach its pods";
        let cure = "ss -ltnp shows who has the ports; end that program or give a larger range with --kubelet-ports, then restart the bridge";
        Finding::warning("kubelet-ports", what, why, cure)
    })
}

fn some(names: impl ExactSizeIterator<Item = String>) -> String {
    let count = names.len();
    let mut text = names.take(NAMED).collect::<Vec<_>>().join(", ");
    if count > NAMED {
        text.push_str(&format!(" and {} more", count - NAMED));
    }
    text
}

#[cfg(test)]
mod tests;
