//! How systemd runs the daemon. Wrong settings kill containers with it, or take their cgroups away.

use std::collections::BTreeMap;

use crate::doctor::finding::Finding;
use crate::doctor::host::{Host, ask};

const CHECK: &str = "unit";
/// More starts by systemd than a node in good health has.
const MANY: u64 = 5;
const PROPERTIES: &str = "LoadState,UnitFileState,KillMode,Delegate,NRestarts,Result,Type";

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// `None` without systemd, or if this is not the node of this machine.
    properties: Option<BTreeMap<String, String>>,
}

pub(crate) fn look(host: &Host) -> Facts {
    if !host.is_machine() || !sampan_sys::systemd::is_init() {
        return Facts::default();
    }
    let shown = ask("systemctl", &["show", "edge-runtime.service", "-p", PROPERTIES]).ok();
    Facts { properties: shown.map(|text| read(&text)) }
}

fn read(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(properties) = &facts.properties else { return Vec::new() };
    let get = |name: &str| properties.get(name).map(String::as_str).unwrap_or_default();
    if get("LoadState") != "loaded" {
        let cure = "install the package of edge-runtime, or write the unit of docs/install.md";
        let why = "nothing starts the node at boot, or again when it ends";
        return vec![Finding::warning(CHECK, "systemd knows no edge-runtime.service", why, cure)];
    }
    let edit =
        |line: &str| format!("systemctl edit edge-runtime: [Service] {line}; then: systemctl restart edge-runtime");
    let mut found = Vec::new();
    if get("KillMode") != "process" {
        let why = "a restart of the daemon ends every container of this node";
        let what = format!("KillMode={} in edge-runtime.service", get("KillMode"));
        found.push(Finding::error(CHECK, what, why, edit("KillMode=process")));
    }
    if get("Delegate") == "no" {
        let why = "systemd may take the cgroups of the containers' monitor away";
        found.push(Finding::warning(CHECK, "Delegate=no in edge-runtime.service", why, edit("Delegate=yes")));
    }
    if get("UnitFileState") == "disabled" {
        let why = "the node does not come back with the machine";
        found.push(Finding::warning(
            CHECK,
            "edge-runtime.service is not enabled",
            why,
            "systemctl enable edge-runtime",
        ));
    }
    let restarts: u64 = get("NRestarts").parse().unwrap_or_default();
    if restarts > MANY {
        let what = format!("systemd has started the daemon {restarts} times again (last end: {})", get("Result"));
        found.push(Finding::warning(CHECK, what, "the daemon ends unasked", "journalctl -u edge-runtime -e"));
    }
    if found.is_empty() {
        found.push(Finding::ok(CHECK, "edge-runtime.service is enabled, with the settings it needs"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    fn judged(change: (&str, &str)) -> Vec<Finding> {
        let text =
            "LoadState=loaded\nUnitFileState=enabled\nKillMode=process\nDelegate=yes\nNRestarts=0\nResult=success\n";
        let mut properties = read(text);
        properties.insert(change.0.into(), change.1.into());
        judge(&Facts { properties: Some(properties) })
    }

    #[test]
    fn a_unit_that_kills_containers_or_does_not_start_is_found() {
        assert_fine(&judged(("Type", "notify")));
        assert_found(&judged(("KillMode", "control-group")), "unit", Severity::Error, "KillMode=process");
        assert_found(&judged(("Delegate", "no")), "unit", Severity::Warning, "Delegate=yes");
        assert_found(
            &judged(("UnitFileState", "disabled")),
            "unit",
            Severity::Warning,
            "systemctl enable edge-runtime",
        );
        assert_found(&judged(("NRestarts", "9")), "unit", Severity::Warning, "journalctl -u edge-runtime");
        assert_found(&judged(("LoadState", "not-found")), "unit", Severity::Warning, "docs/install.md");
        assert!(judge(&Facts::default()).is_empty(), "a machine without systemd");
    }
}
