//! Where a pod may be placed: node selectors, affinity, tolerations, and the taints of nodes.

use std::collections::HashSet;

use serde_json::Value;

use apimachinery::field::{Errors, FieldError, FieldErrorKind, invalid_text, too_many};
use apimachinery::json::{integer, items, present, text};
use apimachinery::names;
use apimachinery::selector::{SIZE_MAX, size};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// `spec.affinity`.
pub(crate) fn affinity(errors: &mut Errors, path: &str, affinity: &Value) {
    if let Some(node) = present(affinity, "nodeAffinity") {
        let path = format!("{path}.nodeAffinity");
        if let Some(required) = present(node, "requiredDuringSchedulingIgnoredDuringExecution") {
            let path = format!("{path}.requiredDuringSchedulingIgnoredDuringExecution");
            node_selector(errors, &path, required);
        }
        let preferred = items(node, "preferredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in preferred.iter().enumerate() {
            let path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{i}]");
            weight(errors, &path, term);
            selector_term(errors, &format!("{path}.preference"), &term["preference"], false);
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = present(affinity, kind) else { continue };
        let path = format!("{path}.{kind}");
        let mut all = 0;
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in items(pods, required).iter().enumerate() {
            topology_key(errors, &format!("{path}.{required}[{i}]"), term);
            all += term_size(term);
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in items(pods, preferred).iter().enumerate() {
            let path = format!("{path}.{preferred}[{i}]");
            weight(errors, &path, term);
            topology_key(errors, &format!("{path}.podAffinityTerm"), &term["podAffinityTerm"]);
            all += term_size(&term["podAffinityTerm"]);
        }
        if all > SIZE_MAX {
            errors.push(too_many(path, all, SIZE_MAX));
        }
    }
}

/// What other pods are held against when one of them is placed, as the size of a selector.
fn term_size(term: &Value) -> usize {
    1 + size(&term["labelSelector"]) + size(&term["namespaceSelector"])
}

fn weight(errors: &mut Errors, path: &str, term: &Value) {
    let weight = integer(term, "weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(format!("{path}.weight"), &weight.into(), "must be in the range 1-100"));
    }
}

fn topology_key(errors: &mut Errors, path: &str, term: &Value) {
    let path = format!("{path}.topologyKey");
    match text(term, "topologyKey") {
        "" => errors.push(FieldError::required(path, "can not be empty")),
        key => invalid_text(errors, &path, key, names::qualified_name(key)),
    }
}

/// A NodeSelector: of a pod's required node affinity or of a PersistentVolume.
pub(crate) fn node_selector(errors: &mut Errors, path: &str, selector: &Value) {
    let path = format!("{path}.nodeSelectorTerms");
    let terms = items(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(FieldError::required(path, "must have at least one node selector term"));
        return;
    }
    for (i, term) in terms.iter().enumerate() {
        selector_term(errors, &format!("{path}[{i}]"), term, true);
    }
}

fn selector_term(errors: &mut Errors, path: &str, term: &Value, check_values: bool) {
    for (i, requirement) in items(term, "matchExpressions").iter().enumerate() {
        expression(errors, &format!("{path}.matchExpressions[{i}]"), requirement, check_values);
    }
    for (i, requirement) in items(term, "matchFields").iter().enumerate() {
        field(errors, &format!("{path}.matchFields[{i}]"), requirement);
    }
}

fn expression(errors: &mut Errors, path: &str, requirement: &Value, check_values: bool) {
    let values = items(requirement, "values");
    let at = format!("{path}.values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(at, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(at, detail));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.push(FieldError::required(at, "must be specified single value when `operator` is 'Lt' or 'Gt'"));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &other.into(), detail));
        }
    }
    let key = text(requirement, "key");
    invalid_text(errors, &format!("{path}.key"), key, names::qualified_name(key));
    for (i, value) in values.iter().filter_map(Value::as_str).enumerate().filter(|_| check_values) {
        invalid_text(errors, &format!("{path}.values[{i}]"), value, names::label_value(value));
    }
}

fn field(errors: &mut Errors, path: &str, requirement: &Value) {
    let values = items(requirement, "values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(FieldError::required(format!("{path}.values"), detail));
        }
        "In" | "NotIn" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &other.into(), detail));
        }
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        let detail = "not a valid field selector key";
        errors.push(FieldError::invalid(format!("{path}.key"), &key.into(), detail));
        return;
    }
    for (i, value) in values.iter().filter_map(Value::as_str).enumerate() {
        invalid_text(errors, &format!("{path}.values[{i}]"), value, names::dns_subdomain(value));
    }
}

/// `spec.tolerations`.
pub(crate) fn tolerations(errors: &mut Errors, path: &str, list: &[Value]) {
    for (i, toleration) in list.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        let operator_path = format!("{path}.operator");
        if !key.is_empty() {
            invalid_text(errors, &format!("{path}.key"), key, names::qualified_name(key));
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(operator_path.clone(), &operator.into(), detail));
        }
        if present(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(format!("{path}.effect"), &effect.into(), detail));
        }
        match operator {
            "" | "Equal" => {
                let complaints = names::label_value(value);
                if !complaints.is_empty() {
                    errors.push(FieldError::invalid(operator_path, &value.into(), &complaints.join(";")));
                }
            }
            "Exists" if !value.is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(operator_path, &value.into(), detail));
            }
            "Exists" => {}
            "Lt" | "Gt" => {
                let all = &["Equal", "Exists", "Lt", "Gt"];
                errors.push(FieldError::not_supported(operator_path, &operator.into(), all));
            }
            other => errors.push(FieldError::not_supported(operator_path, &other.into(), &["Equal", "Exists"])),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(format!("{path}.effect"), &effect.into(), EFFECTS));
        }
    }
}

/// `spec.taints` of a node. The API server reports them below `metadata.taints`.
pub(crate) fn taints(errors: &mut Errors, path: &str, list: &[Value]) {
    let mut seen = HashSet::new();
    for (i, taint) in list.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        invalid_text(errors, &format!("{path}.key"), key, names::qualified_name(key));
        let complaints = names::label_value(value);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.value"), &value.into(), &complaints.join(";")));
        }
        apimachinery::field::one_of(errors, format!("{path}.effect"), effect, EFFECTS);
        if !seen.insert((key, effect)) {
            errors.push(FieldError {
                field: path,
                kind: FieldErrorKind::Duplicate,
                message: format!(
                    "Duplicate value: {{\"Key\":{key:?},\"Value\":{value:?},\"Effect\":{effect:?},\"TimeAdded\":null}}: \
                     taints must be unique by key and effect pair"
                ),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn terms_are_bounded_all_together() {
        let values = |count: usize| (0..count).map(|n| format!("v{n}")).collect::<Value>();
        let term = |count: usize| {
            let expression = json!({"key": "a", "operator": "NotIn", "values": values(count)});
            json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [expression]}})
        };
        let wrong = |counts: &[usize]| {
            let terms: Value = counts.iter().map(|count| term(*count)).collect();
            let pods = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
            let mut errors = Errors::new();
            affinity(&mut errors, "spec.affinity", &json!({ "podAntiAffinity": pods }));
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert!(wrong(&[SIZE_MAX / 2 - 2, SIZE_MAX / 2 - 2]).is_empty());
        assert_eq!(wrong(&[SIZE_MAX / 2, SIZE_MAX / 2]), ["spec.affinity.podAntiAffinity"]);
    }
}
