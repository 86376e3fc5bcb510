//! How fast is scaled: defaults of the rules for either direction, and their rules.

use sampan_json::SetField;
use serde_json::{Value, json};

use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{integer, items, present};
use apimachinery::quantity::{self, Quantity};

const DIRECTIONS: [&str; 2] = ["scaleUp", "scaleDown"];
const STABILIZATION_MAX: i64 = 3600;
const PERIOD_MAX: i64 = 1800;
const SELECT_POLICIES: &[&str] = &["Disabled", "Max", "Min"];
const POLICY_TYPES: &[&str] = &["Percent", "Pods"];

/// Fills in each rule that a behavior leaves open. The stabilization of scaling down stays open: it is an option of the
/// controller.
pub(super) fn default(behavior: &mut Value) {
    let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
    let up = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [policy("Pods", 4), policy("Percent", 100)]});
    let down = json!({"selectPolicy": "Max", "policies": [policy("Percent", 100)]});
    for (direction, mut rules) in DIRECTIONS.into_iter().zip([up, down]) {
        for (field, given) in behavior.get(direction).and_then(Value::as_object).into_iter().flatten() {
            if !given.is_null() {
                rules.set(field, given.clone());
            }
        }
        rules.get_mut("tolerance").map(quantity::canonicalize);
        behavior.set(direction, rules);
    }
}

/// Calls `change` for the tolerance of each direction.
pub(super) fn tolerances(behavior: &mut Value, change: fn(&mut Value) -> Result<(), String>) -> Result<(), String> {
    DIRECTIONS.iter().try_for_each(|direction| {
        let tolerance = behavior.get_mut(*direction).and_then(|rules| rules.get_mut("tolerance"));
        tolerance.map_or(Ok(()), change)
    })
}

/// validateBehavior of pkg/apis/autoscaling/validation.
pub(super) fn validate(errors: &mut Errors, path: &str, behavior: &Value) {
    for direction in DIRECTIONS {
        if let Some(rules) = present(behavior, direction) {
            scaling_rules(errors, &format!("{path}.{direction}"), rules);
        }
    }
}

fn scaling_rules(errors: &mut Errors, path: &str, rules: &Value) {
    if let Some(window) = integer(rules, "stabilizationWindowSeconds") {
        let at = format!("{path}.stabilizationWindowSeconds");
        if window < 0 {
            errors.push(FieldError::invalid(at, &window.into(), "must be greater than or equal to zero"));
        } else if window > STABILIZATION_MAX {
            let detail = format!("must be less than or equal to {STABILIZATION_MAX}");
            errors.push(FieldError::invalid(at, &window.into(), &detail));
        }
    }
    if let Some(select) = present(rules, "selectPolicy")
        && !select.as_str().is_some_and(|select| SELECT_POLICIES.contains(&select))
    {
        errors.push(FieldError::not_supported(format!("{path}.selectPolicy"), select, SELECT_POLICIES));
    }
    let policies = items(rules, "policies");
    if policies.is_empty() {
        errors.push(FieldError::required(format!("{path}.policies"), "must specify at least one Policy"));
    }
    for (index, policy) in policies.iter().enumerate() {
        scaling_policy(errors, &format!("{path}.policies[{index}]"), policy);
    }
    if let Some(tolerance) = Quantity::from_value(&rules["tolerance"]).filter(|amount| amount.is_negative()) {
        let shown = Value::from(tolerance.to_string());
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(format!("{path}.tolerance"), &shown, detail));
    }
}

fn scaling_policy(errors: &mut Errors, path: &str, policy: &Value) {
    if !policy["type"].as_str().is_some_and(|kind| POLICY_TYPES.contains(&kind)) {
        errors.push(FieldError::not_supported(format!("{path}.type"), &policy["type"], POLICY_TYPES));
    }
    for field in ["value", "periodSeconds"] {
        let number = integer(policy, field).unwrap_or_default();
        let at = format!("{path}.{field}");
        if number <= 0 {
            errors.push(FieldError::invalid(at, &number.into(), "must be greater than zero"));
        } else if field == "periodSeconds" && number > PERIOD_MAX {
            let detail = format!("must be less than or equal to {PERIOD_MAX}");
            errors.push(FieldError::invalid(at, &number.into(), &detail));
        }
    }
}
