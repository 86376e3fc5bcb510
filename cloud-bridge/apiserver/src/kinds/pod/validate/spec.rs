//! A pod at creation, without its metadata.

use serde_json::Value;

use super::container::{self, PodFacts};
use super::{affinity, resources, security, volume};
use crate::resource::object_meta;
use apimachinery::field::{Errors, FieldError, invalid_number, invalid_text, one_of};
use apimachinery::json::{flag, integer, items, present, text};
use apimachinery::names;

/// Validates a new pod.
pub(crate) fn create(pod: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    spec_and_pod_rules(&mut errors, pod);
    let spec = &pod["spec"];
    if !items(spec, "ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    if !text(spec, "nodeName").is_empty() && !items(spec, "schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", detail));
    }
    errors
}

/// The rules that hold for a pod at any time.
pub(crate) fn spec_and_pod_rules(errors: &mut Errors, pod: &Value) {
    let spec = &pod["spec"];
    pod_spec(errors, spec);
    for (list, path) in [("containers", "spec.containers"), ("initContainers", "spec.initContainers")] {
        for (i, container) in items(spec, list).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(format!("{path}[{i}].image"), &image.into(), detail));
            }
        }
    }
}

/// The rules of a spec, also of one in a template.
pub(crate) fn pod_spec(errors: &mut Errors, spec: &Value) {
    let grace = integer(spec, "terminationGracePeriodSeconds");
    if grace.is_none() {
        errors.push(FieldError::required("spec.terminationGracePeriodSeconds", ""));
    }
    let volumes = volume::volumes(errors, "spec.volumes", spec);
    let facts = PodFacts {
        volumes,
        claims: items(spec, "resourceClaims").iter().map(|c| text(c, "name")).filter(|n| !n.is_empty()).collect(),
        grace,
        os: present(spec, "os").map(|os| text(os, "name")),
        restart_policy: text(spec, "restartPolicy"),
        host_users: spec["hostUsers"] != false,
    };
    let regular = items(spec, "containers");
    container::containers(errors, "spec.containers", regular, &facts);
    container::init_containers(errors, "spec.initContainers", items(spec, "initContainers"), regular, &facts);
    if let Some(pod_level) = present(spec, "resources") {
        resources::pod(errors, "spec.resources", pod_level);
    }
    host_network_ports(errors, spec);
    let restart = &["Always", "OnFailure", "Never"];
    one_of(errors, "spec.restartPolicy".into(), text(spec, "restartPolicy"), restart);
    let dns = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(errors, "spec.dnsPolicy".into(), text(spec, "dnsPolicy"), dns);
    object_meta::labels(errors, "spec.nodeSelector", spec, "nodeSelector");
    security::pod(errors, "spec.securityContext", spec);
    if let Some(rules) = present(spec, "affinity") {
        affinity::affinity(errors, "spec.affinity", rules);
    }
    dns_config(errors, spec);
    for (i, gate) in items(spec, "readinessGates").iter().enumerate() {
        let kind = text(gate, "conditionType");
        let path = format!("spec.readinessGates[{i}].conditionType");
        invalid_text(errors, &path, kind, names::qualified_name(kind));
    }
    scheduling_gates(errors, spec);
    host_users(errors, spec);
    names_and_deadline(errors, spec);
    hostname_override(errors, spec);
    affinity::tolerations(errors, "spec.tolerations", items(spec, "tolerations"));
    host_aliases(errors, spec);
    for (field, path) in
        [("priorityClassName", "spec.priorityClassName"), ("runtimeClassName", "spec.runtimeClassName")]
    {
        let name = text(spec, field);
        if !name.is_empty() {
            invalid_text(errors, path, name, names::dns_subdomain(name));
        }
    }
    if let Some(policy) = present(spec, "preemptionPolicy").and_then(Value::as_str) {
        one_of(errors, "spec.preemptionPolicy".into(), policy, &["PreemptLowerPriority", "Never"]);
    }
    match present(spec, "os").map(|os| text(os, "name")) {
        Some("") => errors.push(FieldError::required("spec.os.name", "")),
        Some(os) => one_of(errors, "spec.os".into(), os, &["linux", "windows"]),
        None => {}
    }
}

fn host_network_ports(errors: &mut Errors, spec: &Value) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    for (i, container) in items(spec, "containers").iter().enumerate() {
        for (j, port) in items(container, "ports").iter().enumerate() {
            let host = integer(port, "hostPort").unwrap_or_default();
            // In a template it may be left out: the pod's defaults fill it.
            if host != 0 && host != integer(port, "containerPort").unwrap_or_default() {
                let path = format!("spec.containers[{i}].ports[{j}].hostPort");
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(path, &host.into(), detail));
            }
        }
    }
}

fn dns_config(errors: &mut Errors, spec: &Value) {
    let config = present(spec, "dnsConfig");
    let servers = config.map_or(&[][..], |c| items(c, "nameservers"));
    if text(spec, "dnsPolicy") == "None" {
        if config.is_none() {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            return errors.push(FieldError::required("spec.dnsConfig", detail));
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.push(FieldError::required("spec.dnsConfig.nameservers", detail));
        }
    }
    let Some(config) = config else { return };
    if servers.len() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.push(FieldError::invalid("spec.dnsConfig.nameservers", &config["nameservers"], detail));
    }
    for (i, server) in servers.iter().filter_map(Value::as_str).enumerate() {
        invalid_text(errors, &format!("spec.dnsConfig.nameservers[{i}]"), server, names::ip_address(server));
    }
    let searches: Vec<&str> = items(config, "searches").iter().filter_map(Value::as_str).collect();
    if searches.len() > 32 {
        let detail = "must not have more than 32 search paths";
        errors.push(FieldError::invalid("spec.dnsConfig.searches", &config["searches"], detail));
    }
    if searches.join(" ").len() > 2048 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.push(FieldError::invalid("spec.dnsConfig.searches", &config["searches"], detail));
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, s)| **s != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let complaints = names::dns_subdomain_with_underscore(search);
        invalid_text(errors, &format!("spec.dnsConfig.searches[{i}]"), search, complaints);
    }
    for (i, option) in items(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.push(FieldError::required(format!("spec.dnsConfig.options[{i}]"), "must not be empty"));
        }
    }
}

fn scheduling_gates(errors: &mut Errors, spec: &Value) {
    let mut seen = std::collections::HashSet::new();
    for (i, gate) in items(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        let path = format!("spec.schedulingGates[{i}]");
        invalid_text(errors, &path, name, names::qualified_name(name));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(path, &name.into()));
        }
    }
}

fn host_users(errors: &mut Errors, spec: &Value) {
    if spec["hostUsers"] != false {
        return;
    }
    for (field, path) in [("hostNetwork", "spec.hostNetwork"), ("hostPID", "spec.HostPID"), ("hostIPC", "spec.HostIPC")]
    {
        if flag(spec, field) {
            errors.push(FieldError::forbidden(path, "when `hostUsers` is false"));
        }
    }
}

fn names_and_deadline(errors: &mut Errors, spec: &Value) {
    for (field, path) in [("serviceAccountName", "spec.serviceAccountName"), ("nodeName", "spec.nodeName")] {
        let name = text(spec, field);
        if !name.is_empty() {
            invalid_text(errors, path, name, names::dns_subdomain(name));
        }
    }
    if let Some(seconds) = integer(spec, "activeDeadlineSeconds") {
        let complaints = names::in_range(seconds, 1, i64::from(i32::MAX));
        invalid_number(errors, "spec.activeDeadlineSeconds", seconds, complaints);
    }
    for (field, path) in [("hostname", "spec.hostname"), ("subdomain", "spec.subdomain")] {
        let name = text(spec, field);
        if !name.is_empty() {
            invalid_text(errors, path, name, names::dns_label(name));
        }
    }
}

fn hostname_override(errors: &mut Errors, spec: &Value) {
    let Some(name) = present(spec, "hostnameOverride").and_then(Value::as_str) else { return };
    let path = "spec.hostnameOverride";
    for (field, detail) in [
        ("setHostnameAsFQDN", "may not be specified when setHostnameAsFQDN is true"),
        ("hostNetwork", "may not be specified when hostNetwork is true"),
    ] {
        if flag(spec, field) {
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    // The kernel's limit of a host name.
    if name.len() > 64 {
        errors.push(FieldError::too_long(path, 64));
    }
    invalid_text(errors, path, name, names::dns_subdomain(name));
}

fn host_aliases(errors: &mut Errors, spec: &Value) {
    for (i, alias) in items(spec, "hostAliases").iter().enumerate() {
        let ip = text(alias, "ip");
        invalid_text(errors, &format!("spec.hostAliases[{i}].ip"), ip, names::ip_address(ip));
        for (j, name) in items(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            let path = format!("spec.hostAliases[{i}].hostnames[{j}]");
            invalid_text(errors, &path, name, names::dns_subdomain(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_that_overrides_must_be_one_and_stand_alone() {
        let refused = |spec: Value| {
            let mut errors = Errors::new();
            hostname_override(&mut errors, &spec);
            errors.len()
        };
        assert_eq!(refused(json!({})), 0);
        assert_eq!(refused(json!({"hostnameOverride": "override.example.host"})), 0);
        assert_eq!(refused(json!({"hostnameOverride": "Not-RFC1123"})), 1);
        assert_eq!(refused(json!({"hostnameOverride": "a".repeat(65)})), 1);
        assert_eq!(refused(json!({"hostnameOverride": "a", "hostNetwork": true, "setHostnameAsFQDN": true})), 2);
    }
}
