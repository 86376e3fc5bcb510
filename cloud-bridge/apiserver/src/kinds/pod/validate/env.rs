//! Environment variables of a container, and the selectors they share with downward API volumes.

use serde_json::Value;

use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::{items, present, text};
use apimachinery::names;
use apimachinery::quantity::Quantity;

/// Field paths that an environment variable may name.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const DIVISORS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// `env`.
pub(crate) fn env(errors: &mut Errors, path: &str, container: &Value) {
    for (i, var) in items(container, "env").iter().enumerate() {
        let path = format!("{path}[{i}]");
        let name = text(var, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            invalid_text(errors, &format!("{path}.name"), name, names::env_var_name(name));
        }
        if let Some(source) = present(var, "valueFrom") {
            value_from(errors, &format!("{path}.valueFrom"), source, !text(var, "value").is_empty());
        }
    }
}

fn value_from(errors: &mut Errors, path: &str, source: &Value, has_value: bool) {
    let mut sources = 0;
    if let Some(field) = present(source, "fieldRef") {
        sources += 1;
        object_field(errors, &format!("{path}.fieldRef"), field, ENV_FIELDS);
    }
    if let Some(field) = present(source, "resourceFieldRef") {
        sources += 1;
        resource_field(errors, &format!("{path}.resourceFieldRef"), field, false);
    }
    for selector in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(key) = present(source, selector) {
            sources += 1;
            let path = format!("{path}.{selector}");
            let name = text(key, "name");
            invalid_text(errors, &format!("{path}.name"), name, names::dns_subdomain(name));
            match text(key, "key") {
                "" => errors.push(FieldError::required(format!("{path}.key"), "")),
                key => invalid_text(errors, &format!("{path}.key"), key, names::config_map_key(key)),
            }
        }
    }
    sources += usize::from(present(source, "fileKeyRef").is_some());
    let complaint = match sources {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if has_value => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(path, &"".into(), complaint));
}

/// `envFrom`.
pub(crate) fn env_from(errors: &mut Errors, path: &str, container: &Value) {
    for (i, source) in items(container, "envFrom").iter().enumerate() {
        let at = format!("{path}[{i}]");
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            invalid_text(errors, &format!("{at}.prefix"), prefix, names::env_var_name(prefix));
        }
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            if let Some(reference) = present(source, kind) {
                sources += 1;
                let path = format!("{at}.{kind}.name");
                match text(reference, "name") {
                    "" => errors.push(FieldError::required(path, "")),
                    name => invalid_text(errors, &path, name, names::dns_subdomain(name)),
                }
            }
        }
        if sources != 1 {
            let complaint = if sources == 0 {
                "must specify one of: `configMapRef` or `secretRef`"
            } else {
                "may not have more than one field specified at a time"
            };
            errors.push(FieldError::invalid(path, &"".into(), complaint));
        }
    }
}

/// A `fieldRef` whose path must be one of `supported`, or a single label or annotation.
pub(crate) fn object_field(errors: &mut Errors, path: &str, field: &Value, supported: &[&str]) {
    let version = text(field, "apiVersion");
    let field_path = text(field, "fieldPath");
    if version.is_empty() {
        errors.push(FieldError::required(format!("{path}.apiVersion"), ""));
        return;
    }
    if field_path.is_empty() {
        errors.push(FieldError::required(format!("{path}.fieldPath"), ""));
        return;
    }
    let invalid = |detail: String| FieldError::invalid(format!("{path}.fieldPath"), &field_path.into(), &detail);
    if version != "v1" {
        errors.push(invalid(format!("error converting fieldPath: unsupported pod version: {version}")));
        return;
    }
    if let Some((holder, key)) = field_path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        match holder {
            "metadata.annotations" => invalid_text(errors, path, key, names::qualified_name(&key.to_lowercase())),
            "metadata.labels" => invalid_text(errors, path, key, names::qualified_name(key)),
            _ => errors.push(invalid(format!(
                "error converting fieldPath: field label does not support subscript: {field_path}"
            ))),
        }
        return;
    }
    // Fields that the API server can convert, supported here or not.
    const CONVERTIBLE: &[&str] = &[
        "metadata.annotations",
        "metadata.labels",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
        "spec.hostNetwork",
        "spec.serviceAccountName",
    ];
    if supported.contains(&field_path) {
        return;
    }
    if ENV_FIELDS.contains(&field_path) || CONVERTIBLE.contains(&field_path) {
        errors.push(FieldError::not_supported(format!("{path}.fieldPath"), &field_path.into(), supported));
    } else {
        errors.push(invalid(format!("error converting fieldPath: field label not supported: {field_path}")));
    }
}

/// A `resourceFieldRef`; in a volume it must name its container.
pub(crate) fn resource_field(errors: &mut Errors, path: &str, field: &Value, in_volume: bool) {
    let resource = text(field, "resource");
    let huge_pages = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_volume && text(field, "containerName").is_empty() {
        errors.push(FieldError::required(format!("{path}.containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(format!("{path}.resource"), ""));
    } else if !RESOURCE_FIELDS.contains(&resource) && !huge_pages {
        errors.push(FieldError::not_supported(format!("{path}.resource"), &resource.into(), RESOURCE_FIELDS));
    }
    let Some(divisor) = Quantity::from_value(&field["divisor"]).filter(|d| !d.is_zero()) else { return };
    let divisor = divisor.to_string();
    let complaint = match resource {
        "limits.cpu" | "requests.cpu" if !["1m", "1"].contains(&divisor.as_str()) => {
            "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()
        }
        "limits.cpu" | "requests.cpu" => return,
        _ if DIVISORS.contains(&divisor.as_str()) => return,
        _ => {
            let what = match resource {
                "limits.memory" | "requests.memory" => "memory",
                "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
                _ if huge_pages => "hugepages",
                _ => return,
            };
            format!("only divisor's values {} are supported with the {what} resource", DIVISORS.join(", "))
        }
    };
    errors.push(FieldError::invalid(format!("{path}.divisor"), &resource.into(), &complaint));
}
