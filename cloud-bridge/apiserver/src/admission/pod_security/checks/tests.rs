//! What each check refuses, in Kubernetes' words, and from which version on.

use serde_json::{Value, json};

use super::*;

fn standard(level: Level, minor: u32) -> Standard {
    Standard { level, version: Version(minor) }
}

fn told(level: Level, minor: u32, pod: &Value) -> String {
    details(&violations(standard(level, minor), pod))
}

/// A pod that keeps the strictest standard.
fn good() -> Value {
    json!({"metadata": {}, "spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "a", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "projected": {"sources": []}}],
    }})
}

/// The valid pod with another value at the pointer.
fn with(pointer: &str, value: Value) -> Value {
    let mut pod = good();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let mut at = &mut pod;
    for step in parent.split('/').filter(|step| !step.is_empty()) {
        at = match step.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[step],
        };
    }
    at[field] = value;
    pod
}

#[test]
fn a_restricted_pod_keeps_every_version() {
    for minor in 0..40 {
        assert_eq!(told(Level::Restricted, minor, &good()), "", "{minor}");
    }
    assert_eq!(told(Level::Restricted, u32::MAX, &good()), "");
    assert_eq!(told(Level::Privileged, 36, &json!({"spec": {"hostPID": true}})), "");
}

#[test]
fn a_plain_pod_violates_restricted_in_order() {
    let pod = json!({"spec": {"containers": [{"name": "x"}], "volumes": [{"name": "r", "hostPath": {"path": "/"}}],
        "hostPID": true}});
    assert_eq!(
        told(Level::Restricted, u32::MAX, &pod),
        "host namespaces (hostPID=true), allowPrivilegeEscalation != false (container \"x\" must set \
         securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"x\" must set \
         securityContext.capabilities.drop=[\"ALL\"]), restricted volume types (volume \"r\" uses restricted volume type \
         \"hostPath\"), runAsNonRoot != true (pod or container \"x\" must set securityContext.runAsNonRoot=true), \
         seccompProfile (pod or container \"x\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
         \"Localhost\")"
    );
    assert_eq!(
        told(Level::Baseline, u32::MAX, &pod),
        "host namespaces (hostPID=true), hostPath volumes (volume \"r\")"
    );
}

#[test]
fn baseline_refuses_what_reaches_the_host() {
    let container = |field: &str, value: Value| with(&format!("/spec/containers/0/{field}"), value);
    let context = |field: &str, value: Value| container(&format!("securityContext/{field}"), value);
    for (pod, expected) in [
        (
            context("privileged", json!(true)),
            "privileged (container \"a\" must not set securityContext.privileged=true)",
        ),
        (
            context("capabilities", json!({"add": ["SYS_ADMIN", "CHOWN", "NET_RAW"]})),
            "non-default capabilities (container \"a\" must not include \"NET_RAW\", \"SYS_ADMIN\" in \
             securityContext.capabilities.add)",
        ),
        (with("/spec/hostNetwork", json!(true)), "host namespaces (hostNetwork=true)"),
        (
            container("ports", json!([{"hostPort": 80}, {"hostPort": 443}, {"hostPort": 0}, {"containerPort": 1}])),
            "hostPort (container \"a\" uses hostPorts 443, 80)",
        ),
        (
            container("livenessProbe", json!({"httpGet": {"host": "10.0.0.1", "port": 1}})),
            "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"10.0.0.1\")",
        ),
        (
            context("procMount", json!("Unmasked")),
            "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            with("/spec/securityContext/seLinuxOptions", json!({"type": "spc_t", "user": "u", "role": "r"})),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set; role \
             may not be set)",
        ),
        (
            context("seccompProfile", json!({"type": "Unconfined"})),
            "seccompProfile (container \"a\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            context("appArmorProfile", json!({"type": "Unconfined"})),
            "forbidden AppArmor profile (container \"a\" must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            with(
                "/metadata/annotations",
                json!({"container.apparmor.security.beta.kubernetes.io/a": "unconfined",
                    "container.apparmor.security.beta.kubernetes.io/b": "runtime/default"}),
            ),
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
             \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")",
        ),
        (
            with("/spec/securityContext/sysctls", json!([{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}])),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            with("/spec/securityContext/windowsOptions", json!({"hostProcess": true})),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
    ] {
        assert_eq!(told(Level::Baseline, u32::MAX, &pod), expected, "{pod}");
    }
}

#[test]
fn every_list_of_containers_is_looked_at() {
    for list in ["initContainers", "ephemeralContainers"] {
        let bad = json!([{"name": "b", "securityContext": {"privileged": true}}]);
        let told = told(Level::Baseline, 36, &with(&format!("/spec/{list}"), bad));
        assert_eq!(told, "privileged (container \"b\" must not set securityContext.privileged=true)", "{list}");
    }
}

#[test]
fn restricted_refuses_root() {
    for (pod, expected) in [
        (
            with("/spec/securityContext/runAsNonRoot", json!(false)),
            "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)",
        ),
        (
            with("/spec/containers/0/securityContext/runAsUser", json!(0)),
            "runAsUser=0 (container \"a\" must not set runAsUser=0)",
        ),
        (
            with("/spec/securityContext/seccompProfile", Value::Null),
            "seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
             \"Localhost\")",
        ),
        (
            with("/spec/containers/0/securityContext/capabilities/add", json!(["CHOWN"])),
            "unrestricted capabilities (container \"a\" must not include \"CHOWN\" in securityContext.capabilities.add)",
        ),
        (
            with("/spec/volumes", json!([{"name": "a", "nfs": {}}, {"name": "b", "x": {}}, {"name": "c", "csi": {}}])),
            "restricted volume types (volumes \"a\", \"b\" use restricted volume types \"nfs\", \"unknown\")",
        ),
    ] {
        assert_eq!(told(Level::Restricted, u32::MAX, &pod), expected, "{pod}");
    }
}

#[test]
fn checks_have_versions() {
    // A pod, a level, and the versions in which it is refused.
    let sysctl = |name: &str| with("/spec/securityContext/sysctls", json!([{"name": name}]));
    let mut windows = with("/spec/os", json!({"name": "windows"}));
    windows["spec"]["containers"][0]["securityContext"] = json!({});
    let mut own_users = with("/spec/hostUsers", json!(false));
    own_users["spec"]["containers"][0]["securityContext"]["procMount"] = json!("Unmasked");
    let mut root = with("/spec/hostUsers", json!(false));
    root["spec"]["securityContext"] = json!({"runAsUser": 0, "seccompProfile": {"type": "Localhost"}});
    for (pod, level, refused) in [
        (with("/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(true)), Level::Restricted, 8..99),
        (with("/spec/containers/0/securityContext/capabilities/drop", json!([])), Level::Restricted, 22..99),
        (with("/spec/containers/0/securityContext/capabilities/add", json!(["CHOWN"])), Level::Restricted, 22..99),
        (with("/spec/containers/0/securityContext/runAsUser", json!(0)), Level::Restricted, 23..99),
        (with("/spec/securityContext/seccompProfile", Value::Null), Level::Restricted, 19..99),
        (
            with("/metadata/annotations", json!({"seccomp.security.alpha.kubernetes.io/pod": "unconfined"})),
            Level::Baseline,
            0..19,
        ),
        (with("/spec/securityContext/seLinuxOptions", json!({"type": "container_engine_t"})), Level::Baseline, 0..31),
        (sysctl("net.ipv4.ip_local_reserved_ports"), Level::Baseline, 0..27),
        (sysctl("net.ipv4.tcp_fin_timeout"), Level::Baseline, 0..29),
        (sysctl("net.ipv4.tcp_wmem"), Level::Baseline, 0..32),
        (
            with("/spec/containers/0/lifecycle", json!({"preStop": {"tcpSocket": {"host": "h"}}})),
            Level::Baseline,
            34..99,
        ),
        (windows, Level::Restricted, 8..25),
        (own_users.clone(), Level::Baseline, 0..35),
        (own_users, Level::Restricted, 0..99),
        (root, Level::Restricted, 0..35),
    ] {
        for minor in 0..40 {
            let told = told(level, minor, &pod);
            assert_eq!(!told.is_empty(), refused.contains(&minor), "v1.{minor} {level}: {told} {pod}");
        }
    }
}

#[test]
fn ids_are_in_order_and_replace_known_ones() {
    for list in [BASELINE, RESTRICTED] {
        assert!(list.is_sorted_by_key(|check| check.id));
        for check in list {
            assert!(check.versions.is_sorted_by_key(|(since, _)| *since) && !check.versions.is_empty());
            let known = BASELINE.iter().any(|one| one.id == check.instead_of);
            assert!(check.instead_of.is_empty() || known, "{}", check.id);
        }
    }
}
