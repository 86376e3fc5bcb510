//! What single containers may set in their security context (policy/check_privileged.go, check_procMount_baseline.go,
//! check_allowPrivilegeEscalation.go, check_windowsHostProcess.go).

use std::collections::BTreeSet;

use serde_json::Value;

use super::words::{Pod, Violation, containers, containers_that, name, named, quoted, setters};

pub(super) fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let wrong = containers_that(pod, |container| container["securityContext"]["privileged"] == true);
    if wrong.is_empty() {
        return None;
    }
    Violation::new("privileged", format!("{} must not set securityContext.privileged=true", named(&wrong)))
}

pub(super) fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let kind = |container: &'_ Value| container["securityContext"]["procMount"].as_str().map(str::to_owned);
    let wrong: Vec<(&str, String)> = containers(pod)
        .filter_map(|container| Some((name(container), kind(container).filter(|kind| kind != "Default")?)))
        .collect();
    if wrong.is_empty() {
        return None;
    }
    let names: Vec<&str> = wrong.iter().map(|(name, _)| *name).collect();
    let kinds: BTreeSet<&String> = wrong.iter().map(|(_, kind)| kind).collect();
    Violation::new(
        "procMount",
        format!("{} must not set securityContext.procMount to {}", named(&names), quoted(kinds)),
    )
}

pub(super) fn escalation(pod: Pod<'_>) -> Option<Violation> {
    let wrong = containers_that(pod, |container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    if wrong.is_empty() {
        return None;
    }
    Violation::new(
        "allowPrivilegeEscalation != false",
        format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&wrong)),
    )
}

pub(super) fn host_process(pod: Pod<'_>) -> Option<Violation> {
    let set = |object: &Value| object["securityContext"]["windowsOptions"]["hostProcess"] == true;
    let setters = setters(set(&pod["spec"]), &containers_that(pod, |container| set(container)))?;
    Violation::new("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
}
