//! Resource names and amounts.

use std::collections::BTreeSet;

use serde_json::Value;

use apimachinery::field::{Errors, FieldError, invalid_text, with_detail};
use apimachinery::json::{entries, items, text};
use apimachinery::names;
use apimachinery::quantity::Quantity;

const CONTAINER_RESOURCES: &[&str] = &["cpu", "ephemeral-storage", "memory"];
/// Names without a domain that exist at all, in quotas and elsewhere.
const STANDARD_RESOURCES: &[&str] = &[
    "configmaps",
    "count/configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "storage",
];

/// `resources` of a container. `claims` are the names of `spec.resourceClaims`.
pub(crate) fn container(errors: &mut Errors, path: &str, resources: &Value, claims: &BTreeSet<&str>) {
    requirements(errors, path, resources, container_name);
    claim_names(errors, path, resources, claims);
}

/// `spec.resources` of a pod.
pub(crate) fn pod(errors: &mut Errors, path: &str, resources: &Value) {
    requirements(errors, path, resources, |errors, path, name| {
        let before = errors.len();
        standard_name(errors, path, name);
        if errors.len() == before && !["cpu", "memory"].contains(&name) && !name.starts_with("hugepages-") {
            let supported = &["cpu", "hugepages-", "memory"];
            errors.push(FieldError::not_supported(path, &name.into(), supported));
        }
    });
}

fn requirements(errors: &mut Errors, path: &str, resources: &Value, check_name: fn(&mut Errors, &str, &str)) {
    let limits = &resources["limits"];
    let mut huge = false;
    let mut compute = false;
    for list in ["limits", "requests"] {
        for (name, value) in entries(resources, list) {
            let at = format!("{path}.{list}[{name}]");
            check_name(errors, &at, name);
            let Some(amount) = Quantity::from_value(value) else { continue };
            quantity(errors, &at, name, amount);
            if list == "requests" {
                request_within_limit(errors, path, name, amount, Quantity::from_value(&limits[name]));
            }
            if let Some(size) = name.strip_prefix("hugepages-") {
                huge = true;
                let page = Quantity::parse(size).map_or(0, Quantity::units);
                if page <= 0 || amount.units() % page != 0 {
                    let detail = format!("{amount} is not positive integer multiple of {name}");
                    errors.push(FieldError::invalid(at, &amount.to_string().into(), &detail));
                }
            }
            compute |= matches!(name.as_str(), "cpu" | "memory");
        }
    }
    if huge && !compute {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

fn request_within_limit(errors: &mut Errors, path: &str, name: &str, amount: Quantity, limit: Option<Quantity>) {
    // Extended resources and huge pages cannot be overcommitted: a request must equal its limit.
    let overcommit = !name.contains('/') && !name.starts_with("hugepages-");
    let complaint = match limit {
        Some(limit) if amount != limit && !overcommit => format!("must be equal to {name} limit of {limit}"),
        Some(limit) if amount > limit => format!("must be less than or equal to {name} limit of {limit}"),
        None if !overcommit => {
            let detail = "Limit must be set for non overcommitable resources";
            errors.push(FieldError::required(format!("{path}.limits"), detail));
            return;
        }
        _ => return,
    };
    errors.push(FieldError::invalid(format!("{path}.requests"), &amount.to_string().into(), &complaint));
}

/// An amount of a resource: not negative, whole where the resource comes in pieces.
pub(crate) fn quantity(errors: &mut Errors, path: &str, name: &str, amount: Quantity) {
    let shown = Value::from(amount.to_string());
    if amount.is_negative() {
        errors.push(FieldError::invalid(path, &shown, "must be greater than or equal to 0"));
    }
    let counted = name.contains('/') && !name.starts_with("kubernetes.io/");
    if (counted || ["pods", "services", "secrets", "configmaps"].contains(&name)) && !amount.is_integer() {
        errors.push(FieldError::invalid(path, &shown, "must be an integer"));
    }
}

/// A resource that exists at all.
pub(crate) fn standard_name(errors: &mut Errors, path: &str, name: &str) {
    let before = errors.len();
    invalid_text(errors, path, name, names::qualified_name(name));
    let known = STANDARD_RESOURCES.contains(&name) || name.starts_with("hugepages-");
    if errors.len() == before && !name.contains('/') && !known {
        let detail = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, &name.into(), detail));
    }
}

/// A resource that containers have.
pub(crate) fn container_name(errors: &mut Errors, path: &str, name: &str) {
    standard_name(errors, path, name);
    let complaint = if !name.contains('/') {
        if CONTAINER_RESOURCES.contains(&name) || name.starts_with("hugepages-") {
            return;
        }
        "must be a standard resource for containers"
    } else if name.contains("kubernetes.io/") || !name.starts_with("requests.") {
        return;
    } else {
        "doesn't follow extended resource name standard"
    };
    errors.push(FieldError::invalid(path, &name.into(), complaint));
}

fn claim_names(errors: &mut Errors, path: &str, resources: &Value, claims: &BTreeSet<&str>) {
    // Both names and errors may be many: only the first errors list the valid names.
    const TOLD: usize = 16;
    const NAMED: usize = 64;
    for (i, claim) in items(resources, "claims").iter().enumerate() {
        let path = format!("{path}.claims[{i}]");
        let name = text(claim, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !claims.contains(name) {
            let known = match errors.len() {
                _ if claims.is_empty() => " which is empty".to_owned(),
                0..TOLD if claims.len() <= NAMED => {
                    format!(": {}", claims.iter().copied().collect::<Vec<_>>().join(", "))
                }
                _ => String::new(),
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{known}");
            errors.push(with_detail(FieldError::not_found(path, &name.into()), &detail));
        }
    }
}
