//! Security contexts of pods and containers.

use std::collections::HashSet;

use serde_json::Value;

use super::volume::descending_path;
use apimachinery::field::{Errors, FieldError, invalid_number, invalid_struct};
use apimachinery::json::{flag, integer, items, present, text};
use apimachinery::names;

const PROFILE_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

/// `securityContext` of a container. `host_users` is false when the pod has its own user namespace.
pub(crate) fn container(errors: &mut Errors, path: &str, context: &Value, host_users: bool) {
    for field in ["runAsUser", "runAsGroup"] {
        if let Some(id) = integer(context, field) {
            invalid_number(errors, &format!("{path}.{field}"), id, names::user_or_group_id(id));
        }
    }
    if let Some(kind) = present(context, "procMount").and_then(Value::as_str) {
        let path = format!("{path}.procMount");
        if !["Default", "Unmasked"].contains(&kind) {
            errors.push(FieldError::not_supported(path.clone(), &kind.into(), &["Default", "Unmasked"]));
        }
        if host_users && kind == "Unmasked" {
            errors.push(FieldError::invalid(path, &kind.into(), "`hostUsers` must be false to use `Unmasked`"));
        }
    }
    seccomp(errors, &format!("{path}.seccompProfile"), &context["seccompProfile"]);
    if context["allowPrivilegeEscalation"] == false {
        if flag(context, "privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(invalid_struct(path, &shown(context), detail));
        }
        if items(&context["capabilities"], "add").iter().any(|c| c == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(invalid_struct(path, &shown(context), detail));
        }
    }
    app_armor(errors, &format!("{path}.appArmorProfile"), &context["appArmorProfile"]);
}

/// A container's context as the API server shows it.
fn shown(context: &Value) -> String {
    const FIELDS: &[&str] = &[
        "capabilities",
        "privileged",
        "seLinuxOptions",
        "windowsOptions",
        "runAsUser",
        "runAsGroup",
        "runAsNonRoot",
        "readOnlyRootFilesystem",
        "allowPrivilegeEscalation",
        "procMount",
        "seccompProfile",
        "appArmorProfile",
    ];
    let members: Vec<String> = FIELDS
        .iter()
        .map(|field| {
            let name = if *field == "seLinuxOptions" { "SELinuxOptions".to_owned() } else { capitalised(field) };
            let value = match *field {
                "capabilities" if context[*field].is_object() => {
                    let lists = &context[*field];
                    format!("{{\"Add\":{},\"Drop\":{}}}", lists["add"], lists["drop"])
                }
                field => context[field].to_string(),
            };
            format!("\"{name}\":{value}")
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn capitalised(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
}

/// `securityContext` of a pod.
pub(crate) fn pod(errors: &mut Errors, path: &str, spec: &Value) {
    let Some(context) = present(spec, "securityContext") else { return };
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        if let Some(id) = integer(context, field) {
            invalid_number(errors, &format!("{path}.{field}"), id, names::user_or_group_id(id));
        }
    }
    for (i, group) in items(context, "supplementalGroups").iter().enumerate() {
        let id = group.as_i64().unwrap_or_default();
        invalid_number(errors, &format!("{path}.supplementalGroups[{i}]"), id, names::user_or_group_id(id));
    }
    if flag(spec, "hostPID") && flag(spec, "shareProcessNamespace") {
        let path = format!("{path}.shareProcessNamespace");
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(path, &true.into(), detail));
    }
    sysctls(errors, &format!("{path}.sysctls"), context, spec);
    if let Some(policy) = present(context, "fsGroupChangePolicy").and_then(Value::as_str)
        && !["Always", "OnRootMismatch"].contains(&policy)
    {
        let path = format!("{path}.fsGroupChangePolicy");
        errors.push(FieldError::not_supported(path, &policy.into(), &["Always", "OnRootMismatch"]));
    }
    seccomp(errors, &format!("{path}.seccompProfile"), &context["seccompProfile"]);
    app_armor(errors, &format!("{path}.appArmorProfile"), &context["appArmorProfile"]);
    if let Some(policy) = present(context, "supplementalGroupsPolicy").and_then(Value::as_str)
        && !["Merge", "Strict"].contains(&policy)
    {
        let path = format!("{path}.supplementalGroupsPolicy");
        errors.push(FieldError::not_supported(path, &policy.into(), &["Merge", "Strict"]));
    }
}

fn sysctls(errors: &mut Errors, path: &str, context: &Value, spec: &Value) {
    const PATTERN: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen = HashSet::new();
    for (i, sysctl) in items(context, "sysctls").iter().enumerate() {
        let path = format!("{path}[{i}].name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.clone(), ""));
        } else if name.len() > 253 || !name.split(['.', '/']).all(is_sysctl_part) {
            let detail = format!("must have at most 253 characters and match regex {PATTERN}");
            errors.push(FieldError::invalid(path.clone(), &name.into(), &detail));
        } else if seen.contains(name) {
            errors.push(FieldError::duplicate(path.clone(), &name.into()));
        }
        let dotted = name.replace('/', ".");
        let ipc = dotted.starts_with("kernel.shm")
            || dotted.starts_with("kernel.msg")
            || dotted == "kernel.sem"
            || dotted.starts_with("fs.mqueue.");
        for (namespace, host, inside) in
            [("hostNetwork", "hostNetwork", dotted.starts_with("net.")), ("hostIPC", "hostIPC", ipc)]
        {
            if inside && flag(spec, host) {
                let detail = format!("may not be specified when '{namespace}' is true");
                errors.push(FieldError::invalid(path.clone(), &name.into(), &detail));
            }
        }
        seen.insert(name);
    }
}

fn is_sysctl_part(part: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = part.as_bytes();
    let inside = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inside)
}

fn seccomp(errors: &mut Errors, path: &str, profile: &Value) {
    if profile.is_null() {
        return;
    }
    let kind = text(profile, "type");
    let type_path = format!("{path}.type");
    if kind.is_empty() {
        errors.push(FieldError::required(type_path, "type is required when seccompProfile is set"));
    } else if !PROFILE_TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(type_path, &kind.into(), PROFILE_TYPES));
    }
    let local = present(profile, "localhostProfile").and_then(Value::as_str);
    let path = format!("{path}.localhostProfile");
    match (kind, local) {
        ("Localhost", None) => {
            errors.push(FieldError::required(path, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(file)) => descending_path(errors, &path, file),
        (_, Some(_)) => {
            let shown = format!("{{\"Type\":{kind:?},\"LocalhostProfile\":{}}}", profile["localhostProfile"]);
            errors.push(invalid_struct(path, &shown, "can only be set when seccomp type is Localhost"));
        }
        _ => {}
    }
}

fn app_armor(errors: &mut Errors, path: &str, profile: &Value) {
    if profile.is_null() {
        return;
    }
    let local = present(profile, "localhostProfile").and_then(Value::as_str);
    let local_path = format!("{path}.localhostProfile");
    match text(profile, "type") {
        "Localhost" => match local {
            Some(name) if name.trim() != name => {
                errors.push(FieldError::invalid(local_path, &name.into(), "must not be padded with whitespace"));
            }
            Some(name) if !name.is_empty() => {}
            _ => errors.push(FieldError::required(local_path, "must be set when AppArmor type is Localhost")),
        },
        "RuntimeDefault" | "Unconfined" => {
            if let Some(name) = local {
                let detail = "can only be set when AppArmor type is Localhost";
                errors.push(FieldError::invalid(local_path, &name.into(), detail));
            }
        }
        "" => {
            errors.push(FieldError::required(format!("{path}.type"), "type is required when appArmorProfile is set"));
        }
        kind => errors.push(FieldError::not_supported(format!("{path}.type"), &kind.into(), PROFILE_TYPES)),
    }
}
