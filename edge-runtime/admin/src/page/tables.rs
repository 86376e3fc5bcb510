//! Names and values of the page's tables. Pure.

use super::look::Facts;
use crate::top::show::{bytes, tenths};
use crate::top::view::View;

type Rows = Vec<(&'static str, String)>;

pub(super) fn used(facts: &Facts, view: Option<&View>) -> Rows {
    let mut rows = Rows::new();
    if let Some(view) = view {
        let node = &view.node;
        if let Some(milli) = view.node_milli {
            rows.push(("CPU", format!("{} % of {}", tenths(milli / u64::from(node.cpus.max(1))), node.cpus)));
        }
        let swap = if node.swap_bytes > 0 { format!(" and {} swap", bytes(node.swap_bytes)) } else { String::new() };
        rows.push(("Memory", format!("{} of {}{swap}", bytes(node.used_bytes), bytes(node.memory_bytes))));
        rows.push(("Load", node.load.clone()));
        rows.extend(node.degrees.map(|degrees| ("Temperature", format!("{degrees} °C"))));
    }
    if let Some(disk) = facts.disk {
        rows.push(("Disk", format!("{} of {} free", bytes(disk.available_bytes), bytes(disk.total_bytes))));
        if disk.total_inodes > 0 {
            rows.push(("Inodes", format!("{} of {} free", disk.free_inodes, disk.total_inodes)));
        }
    }
    if let Some(tenths) = facts.worn {
        rows.push(("Wear of the medium", format!("at most {} % of its life", (tenths * 10).min(100))));
    }
    let metrics = &facts.daemon.metrics;
    let memory = number(metrics, "process_resident_memory_bytes").map(bytes);
    rows.extend(memory.map(|memory| ("Memory of the daemon", memory)));
    for (cause, name) in [("store", "Written by the store"), ("log", "Written by logs"), ("image", "Written by images")]
    {
        let sample = format!("sampan_node_written_bytes_total{{cause=\"{cause}\"}}");
        rows.extend(number(metrics, &sample).map(|written| (name, bytes(written))));
    }
    rows
}

pub(super) fn upgrade(facts: &Facts) -> Rows {
    let name = |version: &Option<String>| version.clone().unwrap_or_else(|| "the package's".to_owned());
    let state = &facts.versions;
    let mut rows = vec![("In force", name(&state.current))];
    if let Some(trial) = &state.trial {
        let what =
            format!("under way for {} s, started {} times; before: {}", trial.seconds, trial.starts, name(&trial.from));
        rows.push(("Trial", what));
    }
    if let Some(last) = &state.last {
        let how = if last.good { "stayed".to_owned() } else { format!("went back: {}", last.reason) };
        rows.push(("Last trial", format!("{} {how}", name(&last.version))));
    }
    rows
}

pub(super) fn link(facts: &Facts) -> Rows {
    let link = &facts.link;
    let mut rows = vec![("Bridges", facts.bridges.join(", ")), ("Connected to", link.bridge.clone())];
    if facts.daemon.pid.is_none() {
        rows.truncate(1);
    } else {
        rows.push(("Not connected", if link.connected { String::new() } else { link.why.clone() }));
        rows.extend(link.rtt_ms.map(|time| ("Round trip", format!("{time} ms"))));
    }
    rows.push(("Last heard of", link.last_seen.clone().unwrap_or_default()));
    if let Some(kept) = &facts.kept {
        rows.push(("Waiting for a bridge", format!("{} reports, {} bytes", kept.queued.0, kept.queued.1)));
        rows.push(("Cluster", kept.cluster.clone().unwrap_or_default()));
    }
    rows
}

pub(super) fn system(facts: &Facts) -> Rows {
    let version = label(&facts.daemon.metrics, "sampan_node_info", "version").unwrap_or_default().to_owned();
    let daemon = facts.daemon.pid.map(|pid| format!("process {pid}")).unwrap_or_default();
    vec![
        ("Version", version),
        ("Daemon", daemon),
        ("Kernel", facts.kernel.clone()),
        ("System", facts.system.clone()),
        ("Architecture", facts.architecture.to_owned()),
    ]
}

/// The helper's text; empty without devices.
pub(super) fn devices(facts: &Facts) -> Rows {
    facts.devices["text"].as_str().map(|text| ("Devices", text.to_owned())).into_iter().collect()
}

/// The value of a sample of Prometheus' text, by its name and labels as they stand there.
fn number(metrics: &str, sample: &str) -> Option<u64> {
    let value = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
    value.split('.').next()?.parse().ok()
}

/// The value of a label of the first sample of this name.
pub(super) fn label<'a>(metrics: &'a str, name: &str, label: &str) -> Option<&'a str> {
    let labels = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('{'))?;
    labels.split_once(&format!("{label}=\""))?.1.split('"').next()
}

#[cfg(test)]
mod tests {
    use edge_runtime::link::status::LinkStatus;
    use sampan_launcher::versions::{Ended, State, Trial};

    use super::*;

    fn found(rows: &Rows, name: &str) -> Option<String> {
        rows.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn metrics_are_parsed_by_name() {
        let metrics = "# HELP a_b x\na_b{cause=\"log\"} 4096\na_bc 7\na 2.5\nx{a=\"1\",version=\"v\"} 1\n";
        assert_eq!(number(metrics, "a_b{cause=\"log\"}"), Some(4096));
        assert_eq!((number(metrics, "a"), number(metrics, "a_b"), number("", "a")), (Some(2), None, None));
        assert_eq!((label(metrics, "x", "version"), label(metrics, "a", "version")), (Some("v"), None));
    }

    #[test]
    fn trial_and_last_result_are_shown() {
        let trial = Trial { seconds: 300, starts: 2, from: Some("1-a".into()), ..Trial::default() };
        let last = Ended { version: Some("3-c".into()), reason: "no link".into(), ..Ended::default() };
        let versions = State { current: Some("2-b".into()), trial: Some(trial), last: Some(last) };
        let rows = upgrade(&Facts { versions, ..Facts::default() });
        assert_eq!(found(&rows, "In force").as_deref(), Some("2-b"));
        assert_eq!(found(&rows, "Trial").as_deref(), Some("under way for 300 s, started 2 times; before: 1-a"));
        assert_eq!(found(&rows, "Last trial").as_deref(), Some("3-c went back: no link"));
        assert_eq!(upgrade(&Facts::default()), [("In force", "the package's".to_owned())]);
    }

    #[test]
    fn stopped_daemon_shows_no_connection() {
        let link =
            LinkStatus { bridge: "https://b:1".into(), connected: true, rtt_ms: Some(3), ..LinkStatus::default() };
        let mut facts = Facts { link, bridges: vec!["https://b:1".into()], ..Facts::default() };
        let rows = super::link(&facts);
        assert_eq!((found(&rows, "Connected to"), found(&rows, "Bridges").as_deref()), (None, Some("https://b:1")));
        facts.daemon.pid = Some(7);
        assert_eq!(found(&super::link(&facts), "Round trip").as_deref(), Some("3 ms"));
    }

    #[test]
    fn wear_and_free_space_are_shown_if_known() {
        let facts = Facts { worn: Some(11), devices: serde_json::json!({"text": "<b>"}), ..Facts::default() };
        assert_eq!(found(&used(&facts, None), "Wear of the medium").as_deref(), Some("at most 100 % of its life"));
        assert_eq!(devices(&facts), [("Devices", "<b>".to_owned())]);
        assert!(devices(&Facts::default()).is_empty() && used(&Facts::default(), None).is_empty());
    }
}
