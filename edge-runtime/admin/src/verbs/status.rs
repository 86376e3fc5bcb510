//! `edge-runtime status`: the node and its link, from the store and the link's file, while the daemon runs or not.

use std::path::Path;

use edge_runtime::cli::verb::{Given, Operands, Verb};
use edge_runtime::cli::{CliError, is_free};
use edge_runtime::link::identity::Identity;
use edge_runtime::link::status::{self, LinkStatus};
use edge_runtime::paths::Paths;
use edge_runtime::store::Fact;
use sampan_pod::record::PodRecord;
use serde_json::{Value, json};

use crate::output::{Form, JSON, OUTPUT};
use crate::progress::pulls;
use crate::{find, holds};

pub(super) const VERB: Verb = Verb {
    name: "status",
    about: "Show node, version, link to the bridge and queue",
    operands: Operands::None,
    flags: &[OUTPUT, JSON],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let (paths, form) = (given.paths()?, Form::of(&given)?);
    let store = find::store(&paths)?;
    let identity = Identity::load(&paths)?;
    let running = !is_free(&paths.run().join("daemon.lock"));
    let mut link = LinkStatus::read(&status::file(&paths)).unwrap_or_default();
    if !running {
        link.connected = false;
        link.why = "edge-runtime does not run".to_owned();
    }
    let (reports, bytes) = store.outbox_size()?;
    let (pulls, pods) = (pulls::all(&paths), store.pods()?.0);
    let view = json!({
        "node": identity.as_ref().map(|identity| identity.node.as_str()),
        "cluster": store.fact(Fact::Cluster)?,
        "bridges": identity.iter().flat_map(|i| &i.bridges).map(ToString::to_string).collect::<Vec<_>>(),
        "running": running,
        "version": env!("CARGO_PKG_VERSION"),
        "trial": trial(&paths),
        "link": link,
        "stream": store.fact(Fact::Stream)?,
        "sequence": store.fact(Fact::LastSequence)?.and_then(|text| text.parse::<u64>().ok()),
        "pods": pods.len(),
        "holds": holds(pods.iter().map(|pod| &pod.record)),
        "queuedReports": reports,
        "queuedBytes": bytes,
        "pulls": pulls::values(&pulls),
        "devices": counted(&paths.devices(), &paths.device_counters()),
        "localApi": counted(&paths.api_socket(), &paths.api_counters()),
        "plugins": counted(&paths.plugins_socket(), &paths.plugins_counters()),
    });
    form.print(
        &view,
        |_| rows(&view, &pulls.iter().map(pulls::line).collect::<Vec<_>>()),
        || view["node"].as_str().map(str::to_owned).into_iter().collect(),
    )
}

/// The trial that another version or configuration is on, from the launcher's file; null without one.
fn trial(paths: &Paths) -> Value {
    let text = std::fs::read(paths.versions().join("state.json")).unwrap_or_default();
    let state: Value = serde_json::from_slice(&text).unwrap_or_default();
    state["trial"].clone()
}

/// Counters that a helper has sent to the daemon; null without a helper.
fn counted(socket: &Path, counters: &Path) -> Value {
    let runs = socket.exists();
    let text = std::fs::read(counters).ok().filter(|_| runs);
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Pods whose start or stop is held.
fn holds<'a>(pods: impl Iterator<Item = &'a PodRecord>) -> Vec<Value> {
    let held = pods.filter_map(|pod| Some((pod, holds::of(pod)?)));
    held.map(|(pod, (condition, message))| {
        json!({"namespace": pod.namespace, "pod": pod.name, "condition": condition, "message": message})
    })
    .collect()
}

fn on_trial(trial: &Value) -> &'static str {
    match trial["subject"].as_str() {
        None if trial.is_null() => "",
        Some("configuration") => " (another configuration is on trial: edge-runtime upgrade --status)",
        _ => " (on trial: edge-runtime upgrade --status)",
    }
}

fn rows(view: &Value, pulls: &[String]) -> String {
    let link = &view["link"];
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    };
    let state = if link["connected"] == true { "connected" } else { "not connected" };
    let why = link["why"].as_str().filter(|why| !why.is_empty()).map(|why| format!(": {why}"));
    let rows = [
        ("node", text(&view["node"])),
        ("version", format!("{}{}", text(&view["version"]), on_trial(&view["trial"]))),
        ("cluster", text(&view["cluster"])),
        ("bridges", text(&view["bridges"])),
        ("daemon", if view["running"] == true { "runs" } else { "does not run" }.to_owned()),
        (
            "link",
            format!("{state} since {} ({}){}", text(&link["since"]), text(&link["bridge"]), why.unwrap_or_default()),
        ),
        ("last seen", text(&link["lastSeen"])),
        ("epoch", text(&link["epoch"])),
        ("round trip", if link["rttMs"].is_null() { "-".to_owned() } else { format!("{} ms", link["rttMs"]) }),
        ("sequence", format!("{} of stream {}", text(&view["sequence"]), text(&view["stream"]))),
        ("pods", text(&view["pods"])),
        ("queue", format!("{} reports, {} bytes", view["queuedReports"], view["queuedBytes"])),
    ];
    let pulls = pulls.iter().map(|line| format!("{:<11} {line}\n", "pulling"));
    let held = view["holds"].as_array().into_iter().flatten().map(|hold| {
        format!("{:<11} {}/{}: {}\n", "held", text(&hold["namespace"]), text(&hold["pod"]), text(&hold["message"]))
    });
    let rows = rows.map(|(name, value)| format!("{name:<11} {value}\n")).into_iter();
    let helpers = [("devices", "devices"), ("local API", "localApi"), ("plugins", "plugins")];
    let helpers = helpers.into_iter().filter_map(|(name, key)| Some((name, view[key]["text"].as_str()?)));
    let helpers = helpers.map(|(name, counters)| format!("{name:<11} {counters}\n"));
    rows.chain(held).chain(pulls).chain(helpers).collect()
}

#[cfg(test)]
mod tests {
    use sampan_pod::record::StartHold;

    use super::*;

    #[test]
    fn status_names_version_and_trial() {
        let mut view = json!({"node": "n", "version": "0.1.0", "trial": null});
        assert!(rows(&view, &[]).contains("\nversion     0.1.0\n"), "{}", rows(&view, &[]));
        view["trial"] = json!({"subject": "programs"});
        let shown = rows(&view, &["web:1: layer 1 of 2".to_owned()]);
        assert!(
            shown.contains("\nversion     0.1.0 (on trial") && shown.ends_with("\npulling     web:1: layer 1 of 2\n"),
            "{shown}"
        );
    }

    #[test]
    fn status_has_counters_of_helpers_that_run() {
        let shown = rows(&json!({"localApi": {"text": "3 pods"}}), &[]);
        assert!(shown.ends_with("\nlocal API   3 pods\n") && !shown.contains("devices"), "{shown}");
    }

    #[test]
    fn status_names_held_pods() {
        let mut pods = ["web", "db"].map(|name| PodRecord { name: name.into(), ..Default::default() });
        pods[0].start_hold = StartHold::Held;
        let shown = rows(&json!({"holds": holds(pods.iter())}), &[]);
        assert!(shown.ends_with(": edge-runtime release /web\n") && shown.matches("\nheld ").count() == 1, "{shown}");
        assert!(!rows(&json!({"holds": []}), &[]).contains("held"));
    }
}
