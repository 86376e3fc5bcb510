//! Use of the host by pods, except volumes: namespaces, ports, addresses of probes, sysctls
//! (policy/check_hostNamespaces.go, check_hostPorts.go, check_hostProbesAndhostLifecycle.go, check_sysctls.go).

use std::collections::BTreeSet;

use serde_json::Value;

use super::words::{Pod, Violation, containers, name, named, plural, quoted};
use apimachinery::json::{flag, integer, items, text};

pub(super) fn namespaces(pod: Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| flag(&pod["spec"], field));
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() { None } else { Violation::new("host namespaces", shared.join(", ")) }
}

pub(super) fn ports(pod: Pod<'_>) -> Option<Violation> {
    let mut wrong = Vec::new();
    // As texts, by which Kubernetes sorts them.
    let mut all = BTreeSet::new();
    for container in containers(pod) {
        let ports = items(container, "ports").iter().filter_map(|port| integer(port, "hostPort"));
        let ports: Vec<String> = ports.filter(|port| *port != 0).map(|port| port.to_string()).collect();
        if !ports.is_empty() {
            wrong.push(name(container));
        }
        all.extend(ports);
    }
    if wrong.is_empty() {
        return None;
    }
    let shown = all.iter().cloned().collect::<Vec<_>>().join(", ");
    Violation::new(
        "hostPort",
        format!("{} {} {} {shown}", named(&wrong), use_of(&wrong), plural("hostPort", all.len())),
    )
}

fn use_of(containers: &[&str]) -> &'static str {
    if containers.len() == 1 { "uses" } else { "use" }
}

/// Probes and hooks may connect only to the pod.
pub(super) fn probes(pod: Pod<'_>) -> Option<Violation> {
    let mut wrong = BTreeSet::new();
    let mut hosts = BTreeSet::new();
    for container in containers(pod) {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|field| &container[field]);
        let hooks = ["postStart", "preStop"].map(|field| &container["lifecycle"][field]);
        let asked = probes.into_iter().chain(hooks).flat_map(|handler| [&handler["httpGet"], &handler["tcpSocket"]]);
        let asked: Vec<&str> = asked.map(|action| text(action, "host")).filter(|host| !host.is_empty()).collect();
        if !asked.is_empty() {
            wrong.insert(name(container));
        }
        hosts.extend(asked);
    }
    if wrong.is_empty() {
        return None;
    }
    const REASON: &str = "probe or lifecycle host";
    let wrong: Vec<&str> = wrong.into_iter().collect();
    Violation::new(
        REASON,
        format!("{} {} {} {}", named(&wrong), use_of(&wrong), plural(REASON, hosts.len()), quoted(hosts)),
    )
}

/// Sysctls that a version allows beyond those of the versions before it.
const SYSCTLS_V0: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
];
const SYSCTLS_V27: &[&str] = &["net.ipv4.ip_local_reserved_ports"];
const SYSCTLS_V29: &[&str] = &[
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
];
const SYSCTLS_V32: &[&str] = &["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];

fn sysctls(pod: Pod<'_>, allowed: &[&[&str]]) -> Option<Violation> {
    let set = items(&pod["spec"]["securityContext"], "sysctls").iter().map(|sysctl: &Value| text(sysctl, "name"));
    let wrong: Vec<&str> = set.filter(|name| !allowed.iter().any(|list| list.contains(name))).collect();
    if wrong.is_empty() { None } else { Violation::new("forbidden sysctls", wrong.join(", ")) }
}

pub(super) fn sysctls_v0(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, &[SYSCTLS_V0])
}

pub(super) fn sysctls_v27(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, &[SYSCTLS_V0, SYSCTLS_V27])
}

pub(super) fn sysctls_v29(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, &[SYSCTLS_V0, SYSCTLS_V27, SYSCTLS_V29])
}

pub(super) fn sysctls_v32(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, &[SYSCTLS_V0, SYSCTLS_V27, SYSCTLS_V29, SYSCTLS_V32])
}
