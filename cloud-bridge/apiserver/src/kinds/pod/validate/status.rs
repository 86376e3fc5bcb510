//! Updates of a pod's status.

use std::collections::HashMap;

use serde_json::Value;

use super::annotations;
use apimachinery::field::{Errors, FieldError, immutable, invalid_struct, invalid_text};
use apimachinery::json::{integer, items, present, text};
use apimachinery::names;

/// Validates an update of the status subresource.
pub(crate) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    annotations::update(&mut errors, new, old);
    let (status, before, spec) = (&new["status"], &old["status"], &old["spec"]);
    for (i, condition) in items(status, "conditions").iter().enumerate() {
        let kind = text(condition, "type");
        if integer(condition, "observedGeneration").is_some_and(|g| g < 0) {
            let path = format!("status.conditions[{i}].observedGeneration");
            let detail = "must be a non-negative integer";
            errors.push(FieldError::invalid(path, &condition["observedGeneration"], detail));
        }
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            let path = format!("status.conditions[{i}].Type");
            invalid_text(&mut errors, &path, kind, names::qualified_name(kind));
        }
    }
    if text(&new["spec"], "nodeName") != text(spec, "nodeName") {
        errors.push(FieldError::forbidden("status.nodeName", "may not be changed directly"));
    }
    // The class is computed at creation; a client that leaves it out does not mean to clear it.
    if !text(status, "qosClass").is_empty() {
        immutable(&mut errors, "status.qosClass", &status["qosClass"], &before["qosClass"]);
    }
    for (list, containers) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        transitions(&mut errors, list, items(spec, containers), (status, before), spec);
    }
    addresses(&mut errors, status);
    errors
}

/// The elements of a list by their name; the first one of a name counts.
fn by_name(list: &[Value]) -> HashMap<&str, &Value> {
    list.iter().rev().map(|item| (text(item, "name"), item)).collect()
}

/// Refuses that a terminated container that must not restart runs again.
fn transitions(errors: &mut Errors, list: &str, containers: &[Value], status: (&Value, &Value), spec: &Value) {
    let (reported, declared) = (by_name(items(status.0, list)), by_name(containers));
    for (i, old) in items(status.1, list).iter().enumerate() {
        let Some(ended) = present(&old["state"], "terminated") else { continue };
        let name = text(old, "name");
        let new = reported.get(name);
        if new.is_none_or(|new| present(&new["state"], "terminated").is_some()) {
            continue;
        }
        let code = integer(ended, "exitCode").unwrap_or_default();
        if !declared.get(name).is_some_and(|container| should_restart(container, spec, code)) {
            let path = format!("status.{list}[{i}].state");
            errors.push(FieldError::forbidden(path, "may not be transitioned to non-terminated state"));
        }
    }
}

/// Whether an exit with `code` is followed by another start: restart rules, then the container's policy, then
/// the pod's.
fn should_restart(container: &Value, spec: &Value, code: i64) -> bool {
    for rule in items(container, "restartPolicyRules") {
        let codes = &rule["exitCodes"];
        let listed = items(codes, "values").iter().any(|v| v.as_i64() == Some(code));
        let matches = if text(codes, "operator") == "NotIn" { !listed } else { listed };
        if matches && ["Restart", "RestartAllContainers"].contains(&text(rule, "action")) {
            return true;
        }
    }
    let policy = match text(container, "restartPolicy") {
        "" => text(spec, "restartPolicy"),
        own => own,
    };
    match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

fn addresses(errors: &mut Errors, status: &Value) {
    for (list, single) in [("podIPs", "podIP"), ("hostIPs", "hostIP")] {
        let ips = items(status, list);
        if list == "hostIPs"
            && let Some(first) = ips.first()
            && text(first, "ip") != text(status, single)
        {
            let detail = "must be equal to `hostIP`";
            errors.push(FieldError::invalid("status.hostIPs[0].ip", &first["ip"], detail));
        }
        for (i, ip) in ips.iter().enumerate() {
            let ip = text(ip, "ip");
            invalid_text(errors, &format!("status.{list}[{i}]"), ip, names::ip_address(ip));
        }
        let v6 = ips.iter().filter(|ip| text(ip, "ip").contains(':')).count();
        if ips.len() > 2 || ips.len() == 2 && v6 != 1 {
            let detail = "may specify no more than one IP for each IP family";
            let shown: Vec<String> = ips.iter().map(|ip| format!("{{\"IP\":{}}}", ip["ip"])).collect();
            errors.push(invalid_struct(format!("status.{list}"), &format!("[{}]", shown.join(",")), detail));
        }
    }
}
