//! Nodes, namespaces, leases and events.

use std::collections::HashSet;

use serde_json::Value;

use super::{affinity, resources};
use apimachinery::field::{Errors, FieldError, FieldErrorKind, invalid_text};
use apimachinery::json::{entries, integer, items, text};
use apimachinery::names;
use apimachinery::quantity::Quantity;

/// Validates a new Node.
pub(crate) fn node(node: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    // The API server says `metadata.taints`, not `spec.taints`.
    affinity::taints(&mut errors, "metadata.taints", items(&node["spec"], "taints"));
    amounts(&mut errors, node);
    errors
}

/// Validates a change of a Node, its status included.
pub(crate) fn node_update(new: &Value, old: &Value) -> Vec<FieldError> {
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

/// Validates a Namespace.
pub(crate) fn namespace(namespace: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    for finalizer in items(&namespace["spec"], "finalizers").iter().filter_map(Value::as_str) {
        invalid_text(&mut errors, "spec.finalizers", finalizer, names::qualified_name(finalizer));
        if !finalizer.contains('/') && finalizer != "kubernetes" {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid("spec.finalizers", &finalizer.into(), detail));
        }
    }
    errors
}

/// Validates a Lease.
pub(crate) fn lease(lease: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &lease["spec"];
    if integer(spec, "leaseDurationSeconds").is_some_and(|s| s <= 0) {
        let path = "spec.leaseDurationSeconds";
        errors.push(FieldError::invalid(path, &spec["leaseDurationSeconds"], "must be greater than 0"));
    }
    if integer(spec, "leaseTransitions").is_some_and(|n| n < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.leaseTransitions", &spec["leaseTransitions"], detail));
    }
    errors
}

/// Validates an Event of the core group: it lives in the namespace of what it is about, or in `default`.
pub(crate) fn event(event: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let involved = if event.get("regarding").is_some() { "regarding" } else { "involvedObject" };
    let about = text(&event[involved], "namespace");
    let own = text(&event["metadata"], "namespace");
    let shown = Value::from(about);
    if about.is_empty() {
        if !["default", "kube-system"].contains(&own) {
            errors.push(FieldError::invalid("involvedObject.namespace", &shown, "does not match event.namespace"));
        }
    } else if about != own {
        errors.push(FieldError::invalid("involvedObject.namespace", &shown, "does not match event.namespace"));
    }
    errors
}
