//! PodDisruptionBudgets: how many pods of an application may be disrupted at once. Evictions check them
//! (`registry/subresource/eviction`); a controller counts the healthy pods.

use jiff::Timestamp;
use k8s_openapi::api::policy::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::columns::{AGE, NAME, Table, age, name};
use super::conditions;
use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, keep_status, spec_changed};
use super::workload::amount::{amount, at_most_all};
use super::workload::selector::selector;
use crate::codec::decode;
use crate::patch::merge_keys::{CONDITIONS, META, Type, object, whole};
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, invalid_struct, not_negative};
use apimachinery::json::{integer, items, present};
use apimachinery::names;

/// The storage of the budgets.
pub(crate) const STORAGE: &str = "poddisruptionbudgets.policy";

pub(crate) static KIND: Kind = Kind {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    namespaced: true,
    check: Some(decode::check::<v1::PodDisruptionBudget>),
    rules: Rules { name: names::path_segment, allow_unconditional_update: false, ..Rules::SPEC_AND_STATUS },
    generation: Some(spec_changed),
    default,
    prepare_create: |budget| budget.set("status", counts()),
    prepare_update: keep_status,
    create: validate,
    update: |new, _| validate(new),
    status: Some(validate_status),
    table: &Table {
        columns: [
            NAME,
            ("Min Available", "string", 0, "How many pods must be there."),
            ("Max Unavailable", "string", 0, "How many pods may be missing."),
            ("Allowed Disruptions", "integer", 0, "Number of pod disruptions that are currently allowed."),
            AGE,
        ],
        row,
    },
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("spec", &SPEC), object("status", &CONDITIONS)] };
static SPEC: Type = Type { fields: &[whole("selector")] };

/// Status of a new budget, before its pods are counted.
fn counts() -> Value {
    json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
}

fn default(budget: &mut Value) {
    if let Some(selector) = budget.get_mut("spec").and_then(|spec| spec.get_mut("selector")) {
        drop_zero(selector, &["matchLabels", "matchExpressions"]);
    }
    if let Some(status) = budget.get_mut("status") {
        drop_zero(status, &["observedGeneration", "disruptedPods"]);
    }
}

/// K8s pkg/apis/policy/validation.
fn validate(budget: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &budget["spec"];
    const AMOUNTS: [&str; 2] = ["minAvailable", "maxUnavailable"];
    if AMOUNTS.iter().all(|field| present(spec, field).is_some()) {
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["minAvailable"], spec["selector"], spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]
        );
        errors.push(invalid_struct("spec", &shown, "minAvailable and maxUnavailable cannot be both set"));
    }
    for field in AMOUNTS {
        if let Some(value) = present(spec, field) {
            let path = format!("spec.{field}");
            let number = amount(&mut errors, &path, value);
            at_most_all(&mut errors, &path, value, number);
        }
    }
    selector(&mut errors, "spec.selector", &spec["selector"]);
    const POLICIES: &[&str] = &["AlwaysAllow", "IfHealthyBudget"];
    if let Some(policy) = present(spec, "unhealthyPodEvictionPolicy")
        && !policy.as_str().is_some_and(|policy| POLICIES.contains(&policy))
    {
        errors.push(FieldError::not_supported("spec.unhealthyPodEvictionPolicy", policy, POLICIES));
    }
    errors
}

fn validate_status(new: &Value, _: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let status = &new["status"];
    conditions::validate(&mut errors, "status.conditions", items(status, "conditions"));
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        not_negative(&mut errors, format!("status.{field}"), integer(status, field).unwrap_or_default());
    }
    errors
}

fn row(budget: &Value, now: Timestamp) -> [Value; 5] {
    let spec = &budget["spec"];
    let amount = |field: &str| match present(spec, field) {
        Some(Value::String(percent)) => percent.as_str().into(),
        Some(count) => count.to_string().into(),
        None => "N/A".into(),
    };
    let allowed = integer(&budget["status"], "disruptionsAllowed").unwrap_or_default();
    [name(budget), amount("minAvailable"), amount("maxUnavailable"), allowed.into(), age(budget, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::strategy::Strategy;

    fn complaints(spec: Value) -> Vec<String> {
        validate(&json!({ "spec": spec })).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn a_budget_is_one_amount_that_can_be_met() {
        let none: [&str; 0] = [];
        assert_eq!(complaints(json!({"minAvailable": 0, "selector": {}})), none);
        assert_eq!(complaints(json!({"maxUnavailable": "100%"})), none);
        assert_eq!(
            complaints(json!({"minAvailable": 1, "maxUnavailable": "5%", "selector": {"matchLabels": {"a": "b"}}})),
            ["spec: Invalid value: {\"MinAvailable\":1,\"Selector\":{\"matchLabels\":{\"a\":\"b\"}},\
                 \"MaxUnavailable\":\"5%\",\"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot \
                 be both set"]
        );
        assert_eq!(
            complaints(json!({"minAvailable": -1})),
            ["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"]
        );
        assert_eq!(
            complaints(json!({"maxUnavailable": "101%"})),
            ["spec.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%"]
        );
        assert_eq!(
            complaints(json!({"unhealthyPodEvictionPolicy": "Never"})),
            ["spec.unhealthyPodEvictionPolicy: Unsupported value: \"Never\": supported values: \"AlwaysAllow\", \
                 \"IfHealthyBudget\""]
        );
    }

    #[test]
    fn counts_are_none_below_zero() {
        let status = json!({"status": {"disruptionsAllowed": -1, "expectedPods": 1, "conditions": [{"type": "a"}]}});
        let fields: Vec<String> = validate_status(&status, &Value::Null).into_iter().map(|e| e.field).collect();
        assert!(
            fields.contains(&"status.disruptionsAllowed".to_owned()) && !fields.contains(&"status.expectedPods".into())
        );
        assert!(fields.contains(&"status.conditions[0].status".to_owned()), "{fields:?}");
    }

    #[test]
    fn a_patch_replaces_the_selector_as_a_whole() {
        let old = json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "1"}}}});
        let patch = json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}});
        let merged = KIND.strategic_merge(old, patch).unwrap();
        assert_eq!(merged["spec"], json!({"minAvailable": 1, "selector": {"matchLabels": {"b": "2"}}}));
    }
}
