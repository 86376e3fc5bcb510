//! Rules of nodes.

use std::collections::HashSet;

use serde_json::Value;

use crate::kinds::cidr;
use crate::kinds::pod::validate::{affinity, resources};
use apimachinery::field::{Errors, FieldError, FieldErrorKind};
use apimachinery::json::{entries, items, text};
use apimachinery::quantity::Quantity;

/// Validates a new Node.
pub(crate) fn create(node: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    // The API server's path is `metadata.taints`, not `spec.taints`.
    affinity::taints(&mut errors, "metadata.taints", items(&node["spec"], "taints"));
    amounts(&mut errors, node);
    pod_ranges(&mut errors, &node["spec"]);
    errors
}

/// Validates a change of a Node, its status included.
pub(crate) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    amounts(&mut errors, new);
    let addresses = items(&new["status"], "addresses");
    let mut seen = HashSet::new();
    for (i, address) in addresses.iter().enumerate() {
        if !seen.insert((text(address, "type"), text(address, "address"))) {
            let shown = format!("{{\"Type\":{},\"Address\":{}}}", address["type"], address["address"]);
            errors.push(FieldError {
                field: format!("status.addresses[{i}]"),
                kind: FieldErrorKind::Duplicate,
                message: format!("Duplicate value: {shown}"),
            });
        }
    }
    // Ranges from before may stay.
    if new["spec"]["podCIDRs"] != old["spec"]["podCIDRs"] {
        pod_ranges(&mut errors, &new["spec"]);
    }
    let cidrs = items(&old["spec"], "podCIDRs");
    if !cidrs.is_empty() && cidrs != items(&new["spec"], "podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", detail));
    }
    let provider = text(&old["spec"], "providerID");
    if !provider.is_empty() && provider != text(&new["spec"], "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", detail));
    }
    affinity::taints(&mut errors, "metadata.taints", items(&new["spec"], "taints"));
    errors
}

/// Ranges of a node's pods: one of each family at most (`ValidateNode`).
fn pod_ranges(errors: &mut Errors, spec: &Value) {
    const PATH: &str = "spec.podCIDRs";
    let texts: Vec<&str> = items(spec, "podCIDRs").iter().filter_map(Value::as_str).collect();
    let mut families = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        match cidr::read(text) {
            Ok(range) => families.push(range.is_ipv4()),
            Err((why, _)) => errors.push(FieldError::invalid(format!("{PATH}[{i}]"), &(*text).into(), &why)),
        }
    }
    let one_each = match families[..] {
        [] | [_] => true,
        [first, second] => first != second,
        _ => false,
    };
    if !one_each {
        let shown = &spec["podCIDRs"];
        errors.push(FieldError::invalid(PATH, shown, "may specify no more than one CIDR for each IP family"));
    }
    for (i, text) in texts.iter().enumerate().filter(|(i, text)| texts[..*i].contains(text)) {
        errors.push(FieldError::duplicate(format!("{PATH}[{i}]"), &(*text).into()));
    }
}

fn amounts(errors: &mut Errors, node: &Value) {
    for list in ["capacity", "allocatable"] {
        for (name, value) in entries(&node["status"], list) {
            if let Some(amount) = Quantity::from_value(value) {
                resources::quantity(errors, &format!("status.{list}.{name}"), name, amount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_ranges_are_ranges_one_of_each_family() {
        let told = |ranges: Value| {
            let errors = create(&json!({"spec": {"podCIDRs": ranges}}));
            errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect::<Vec<_>>()
        };
        for fine in [json!([]), json!(["10.0.0.0/24"]), json!(["10.0.0.0/24", "fd00::/64"])] {
            assert_eq!(told(fine), [""; 0]);
        }
        assert!(
            told(json!(["10.0.0.0"]))[0].starts_with("spec.podCIDRs[0]: Invalid value: \"10.0.0.0\": must be a valid")
        );
        assert_eq!(
            told(json!(["10.0.0.0/24", "10.0.1.0/24"])),
            [
                "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.1.0/24\"]: may specify no more than one CIDR for each \
              IP family"
            ]
        );
        assert_eq!(told(json!(["10.0.0.0/24", "10.0.0.0/24"])).len(), 2);
        let old = json!({"spec": {"podCIDRs": ["x"]}});
        assert!(update(&old, &old).is_empty(), "what is there may stay");
    }
}
