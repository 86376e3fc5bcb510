//! Warnings about a valid pod or pod template (K8s pkg/api/pod/warnings.go, pkg/api/node/util.go). Pure.

pub(crate) mod common;
mod paths;
mod ports;

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::codec::parse::shown_path;
use crate::kinds::{cidr, volume};
use apimachinery::json::{entries, integer, items, present, text};
use apimachinery::names;
use common::{LISTS, TOLD_MAX, deprecated, fraction, node_term};

/// Warnings about a pod, or a template at `path` (`spec.template`; empty for a pod).
pub(crate) fn of(path: &str, pod: &Value) -> Vec<String> {
    let at = if path.is_empty() { String::new() } else { format!("{path}.") };
    let spec = &pod["spec"];
    let mut told = Vec::new();
    node_labels(&at, spec, &mut told);
    pod_affinity(&at, spec, &mut told);
    annotations(&at, pod, &mut told);
    volumes(&at, spec, &mut told);
    paths::of(spec, &mut told);
    repeated(&at, spec, &mut told);
    fractions(&format!("{at}spec.overhead"), &spec["overhead"], &mut told);
    for list in LISTS {
        for (i, container) in items(spec, list).iter().enumerate() {
            let path = format!("{at}spec.{list}[{i}]");
            for amounts in ["limits", "requests"] {
                fractions(&format!("{path}.resources.{amounts}"), &container["resources"][amounts], &mut told);
            }
            environment(&path, container, &mut told);
        }
    }
    ports::of(&at, spec, &mut told);
    addresses(&at, spec, &mut told);
    if integer(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        told.push(format!(
            "{at}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    told.truncate(TOLD_MAX);
    told
}

fn node_labels(at: &str, spec: &Value, told: &mut Vec<String>) {
    for (label, _) in entries(spec, "nodeSelector") {
        told.extend(deprecated(label).map(|why| format!("{at}spec.nodeSelector[{label}]: {why}")));
    }
    let affinity = &spec["affinity"]["nodeAffinity"];
    let path = format!("{at}spec.affinity.nodeAffinity");
    let required = items(&affinity["requiredDuringSchedulingIgnoredDuringExecution"], "nodeSelectorTerms");
    let required = required.iter().enumerate().map(|(i, term)| {
        (format!("{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{i}]"), term)
    });
    let preferred = items(affinity, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate();
    let preferred = preferred.map(|(i, one)| {
        (format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{i}].preference"), &one["preference"])
    });
    for (path, term) in required {
        node_term(&path, term, told);
    }
    for (path, term) in preferred {
        node_term(&path, term, told);
        for (i, expression) in items(term, "matchExpressions").iter().enumerate() {
            for (j, value) in items(expression, "values").iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                let path = format!("{path}.matchExpressions[{i}].values[{j}]");
                let wrong = names::label_value(value).into_iter();
                told.extend(wrong.map(|why| format!("{path}: {} is invalid, {why}", shown_path(value))));
            }
            if told.len() > TOLD_MAX {
                return;
            }
        }
    }
    for (i, spread) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = format!("{at}spec.topologySpreadConstraints[{i}]");
        let label = text(spread, "topologyKey");
        told.extend(deprecated(label).map(|why| format!("{path}.topologyKey: {label} is {why}")));
        if spread["labelSelector"].is_null() {
            told.push(format!("{path}.labelSelector: a null labelSelector results in matching no pod"));
        }
    }
}

fn pod_affinity(at: &str, spec: &Value, told: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (list, inner) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm."),
        ] {
            for (i, term) in items(&spec["affinity"][kind], list).iter().enumerate() {
                let term = if inner.is_empty() { term } else { &term["podAffinityTerm"] };
                if term["labelSelector"].is_null() && told.len() <= TOLD_MAX {
                    told.push(format!(
                        "{at}spec.affinity.{kind}.{list}[{i}].{inner}labelSelector: a null labelSelector results in \
                         matching no pod"
                    ));
                }
            }
        }
    }
}

/// Addresses in forms that not every program reads the same.
fn addresses(at: &str, spec: &Value, told: &mut Vec<String>) {
    for (i, server) in items(&spec["dnsConfig"], "nameservers").iter().enumerate() {
        let path = format!("{at}spec.dnsConfig.nameservers[{i}]");
        told.extend(cidr::ip_warning(&path, server.as_str().unwrap_or_default()));
    }
    for (i, alias) in items(spec, "hostAliases").iter().enumerate() {
        told.extend(cidr::ip_warning(&format!("{at}spec.hostAliases[{i}].ip"), text(alias, "ip")));
    }
}

fn annotations(at: &str, pod: &Value, told: &mut Vec<String>) {
    const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const OLD: [(&str, &str); 3] = [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
        ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ];
    let given = &pod["metadata"]["annotations"];
    for (name, why) in OLD.into_iter().filter(|(name, _)| given.get(*name).is_some()) {
        told.push(format!("{at}metadata.annotations[{name}]: {why}"));
    }
    if given.get(SECCOMP).is_some() && present(&pod["spec"]["securityContext"], "seccompProfile").is_none() {
        let why = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
        told.push(format!("{at}metadata.annotations[{SECCOMP}]: {why}"));
    }
    if entries(&pod["metadata"], "annotations").next().is_none() {
        return;
    }
    for container in LISTS.into_iter().flat_map(|list| items(&pod["spec"], list)) {
        let context = &container["securityContext"];
        let name = format!("container.seccomp.security.alpha.kubernetes.io/{}", text(container, "name"));
        if given.get(&name).is_some() && present(context, "seccompProfile").is_none() {
            let why = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
            told.push(format!("{at}metadata.annotations[{name}]: {why}"));
        }
        // For a pod itself, the annotation is converted to the field.
        let name = format!("container.apparmor.security.beta.kubernetes.io/{}", text(container, "name"));
        let profile = given.get(&name).filter(|_| !at.is_empty() && present(context, "appArmorProfile").is_none());
        let of_pod = &pod["spec"]["securityContext"]["appArmorProfile"];
        if profile.is_some_and(|profile| *of_pod != apparmor(profile.as_str().unwrap_or_default())) {
            let why = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
            told.push(format!("{at}metadata.annotations[{name}]: {why}"));
        }
    }
}

/// The field that an AppArmor annotation represents (K8s pkg/api/pod/util.go `ApparmorFieldForAnnotation`).
fn apparmor(annotation: &str) -> Value {
    match annotation {
        "unconfined" => json!({"type": "Unconfined"}),
        "runtime/default" => json!({"type": "RuntimeDefault"}),
        other => match other.strip_prefix("localhost/").filter(|name| !name.is_empty()) {
            Some(name) => json!({"type": "Localhost", "localhostProfile": name}),
            None => Value::Null,
        },
    }
}

fn volumes(at: &str, spec: &Value, told: &mut Vec<String>) {
    const OLD: [(&str, &str); 9] = [
        ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
        ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
        ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    for (i, one) in items(spec, "volumes").iter().enumerate() {
        let old = OLD.into_iter().filter(|(kind, _)| present(one, kind).is_some());
        told.extend(old.map(|(kind, why)| {
            let shown = if kind == "storageos" { "storageOS" } else { kind };
            format!("{at}spec.volumes[{i}].{shown}: {why}")
        }));
        let claim = &one["ephemeral"]["volumeClaimTemplate"]["spec"];
        let path = format!("{at}spec.volumes[{i}].ephemeral.volumeClaimTemplate.spec");
        told.extend(volume::fractions(&path, claim));
    }
}

/// Names that a list has twice.
fn repeated(at: &str, spec: &Value, told: &mut Vec<String>) {
    for (list, field) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen = HashSet::new();
        for (i, item) in items(spec, list).iter().enumerate() {
            let name = text(item, field);
            if !seen.insert(name) {
                told.push(format!("{at}spec.{list}[{i}].{field}: duplicate {field} {name:?}"));
            }
            if list == "imagePullSecrets" && name.is_empty() {
                told.push(format!("{at}spec.{list}[{i}].{field}: invalid empty name \"\""));
            }
        }
    }
}

/// Bytes have no parts.
fn fractions(path: &str, amounts: &Value, told: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        told.extend(fraction(path, amounts, name));
    }
}

/// A variable that is set twice may be meant: the second value may refer to the first.
fn environment(path: &str, container: &Value, told: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (i, variable) in items(container, "env").iter().enumerate() {
        let name = text(variable, "name");
        if seen.insert(name) {
            continue;
        }
        let (value, reference) = (text(variable, "value"), format!("$({name})"));
        if present(variable, "valueFrom").is_some() || value == reference || !value.contains(&reference) {
            told.push(format!(
                "{path}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plain_pod_has_no_warnings() {
        let pod = json!({"metadata": {}, "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [
            {"name": "a", "env": [{"name": "A", "value": "x"}, {"name": "A", "value": "$(A) y"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}],
                "resources": {"limits": {"memory": "64Mi", "cpu": "100m"}}}]}});
        assert_eq!(of("", &pod), [""; 0]);
    }

    #[test]
    fn each_warning_has_kubernetes_words() {
        let hidden = "env[1]: hides previous definition of \"A\", which may be dropped when using apply";
        for (spec, expected) in [
            (
                json!({"containers": [{"env": [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]}]}),
                format!("spec.containers[0].{hidden}"),
            ),
            (
                json!({"initContainers": [{"env": [{"name": "A"}, {"name": "A", "valueFrom": {}}]}]}),
                format!("spec.initContainers[0].{hidden}"),
            ),
            (
                json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}),
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead"
                    .into(),
            ),
            (
                json!({"containers": [{"resources": {"requests": {"memory": "100m"}}}]}),
                "spec.containers[0].resources.requests[memory]: fractional byte value \"100m\" is invalid, must be an \
                 integer"
                    .into(),
            ),
            (
                json!({"containers": [{"ports": [{"containerPort": 1, "protocol": "TCP"}]},
                    {"ports": [{"containerPort": 1, "protocol": "TCP"}]}]}),
                "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]".into(),
            ),
            (
                json!({"hostAliases": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}]}),
                "spec.hostAliases[1].ip: duplicate ip \"1.2.3.4\"".into(),
            ),
            (json!({"volumes": [{"name": "v", "gitRepo": {}}]}), "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+".into()),
            (
                json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}),
                "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null \
                 labelSelector results in matching no pod"
                    .into(),
            ),
            (
                json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}),
                "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm\
                 .labelSelector: a null labelSelector results in matching no pod"
                    .into(),
            ),
            (
                json!({"dnsConfig": {"nameservers": ["2001:db8::0001"]}}),
                "spec.dnsConfig.nameservers[0]: IPv6 address \"2001:db8::0001\" should be in RFC 5952 canonical format \
                 (\"2001:db8::1\")"
                    .into(),
            ),
            (
                json!({"topologySpreadConstraints": [{"topologyKey": "a"}]}),
                "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"
                    .into(),
            ),
        ] {
            let pod = json!({ "spec": spec });
            assert_eq!(of("", &pod), [expected.as_str()]);
            assert_eq!(
                of("spec.template", &pod)[0],
                format!("spec.template.{}", expected.replace("with spec.", "with spec.template.spec."))
            );
        }
    }

    #[test]
    fn many_warnings_are_cut() {
        let variable = json!({"name": "A", "value": "x"});
        assert_eq!(of("", &json!({"spec": {"containers": [{"env": vec![variable; 1000]}]}})).len(), TOLD_MAX);
    }
}
