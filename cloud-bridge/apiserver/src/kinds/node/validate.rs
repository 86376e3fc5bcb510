//! Rules of nodes.

use std::collections::HashSet;

use serde_json::Value;

use crate::kinds::pod::validate::{affinity, resources};
use apimachinery::field::{Errors, FieldError, FieldErrorKind};
use apimachinery::json::{entries, items, text};
use apimachinery::quantity::Quantity;

/// Validates a new Node.
pub(crate) fn create(node: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    // The API server says `metadata.taints`, not `spec.taints`.
    affinity::taints(&mut errors, "metadata.taints", items(&node["spec"], "taints"));
    amounts(&mut errors, node);
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

fn amounts(errors: &mut Errors, node: &Value) {
    for list in ["capacity", "allocatable"] {
        for (name, value) in entries(&node["status"], list) {
            if let Some(amount) = Quantity::from_value(value) {
                resources::quantity(errors, &format!("status.{list}.{name}"), name, amount);
            }
        }
    }
}
