//! Whether the disruption budgets of a pod allow its eviction now, and their status afterwards. Pure. K8s
//! pkg/registry/core/pod/storage/eviction.go.

use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::{Value, json};

use apimachinery::json::{integer, items, object_mut, present, text};
use apimachinery::{meta, selector};

/// Maximum number of evictions that the budget's controller has not seen yet.
const DISRUPTED_MAX: usize = 2000;
const CONDITION: &str = "DisruptionAllowed";

/// Why a pod stays.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Several budgets are for this pod.
    SeveralBudgets,
    /// The budget's controller has not seen its newest spec.
    Processing { budget: String },
    /// The budget itself is not as it should be.
    Broken { budget: String, why: &'static str },
    /// The budget allows no further disruption.
    Spent { why: String },
}

/// Pods that run nothing, or no longer, cost no budget.
pub(super) fn needs_none(pod: &Value) -> bool {
    matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed" | "Pending") || meta::deleting(pod)
}

/// Whether a budget is for this pod: without a selector it is for none, with an empty one for all.
pub(super) fn is_for(budget: &Value, pod: &Value) -> bool {
    let chosen = present(&budget["spec"], "selector");
    chosen.is_some_and(|chosen| selector::selects(chosen, &pod["metadata"]["labels"]))
}

/// Charges the eviction of a pod to its budgets: returns the budget with its new status, if it changes.
pub(super) fn spend(pod: &Value, budgets: &[&Value], now: Timestamp) -> Result<Option<Value>, Refusal> {
    let budget = match budgets {
        [] => return Ok(None),
        [one] => *one,
        _ => return Err(Refusal::SeveralBudgets),
    };
    if !is_ready(pod) && spares_unhealthy(budget) {
        return Ok(None);
    }
    let (name, status) = (meta::text(budget, "name").to_owned(), &budget["status"]);
    let number = |field: &str| integer(status, field).unwrap_or_default();
    if number("observedGeneration") < integer(&budget["metadata"], "generation").unwrap_or_default() {
        return Err(Refusal::Processing { budget: name });
    }
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return Err(Refusal::Broken { budget: name, why: "pdb disruptions allowed is negative" });
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > DISRUPTED_MAX) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Refusal::Broken { budget: name, why });
    }
    if allowed == 0 {
        return Err(Refusal::Spent { why: why_spent(&name, status) });
    }
    let mut budget = budget.clone();
    budget.set_at(&["status", "disruptionsAllowed"], (allowed - 1).into());
    if allowed == 1 {
        none_left(&mut budget, now);
    }
    if let Some(pods) = budget.get_mut("status").and_then(|status| object_mut(status, "disruptedPods")) {
        pods.insert(meta::text(pod, "name").to_owned(), meta::rfc3339(now).into());
    }
    Ok(Some(budget))
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    items(status, "conditions").iter().find(|one| text(one, "type") == kind)
}

fn is_ready(pod: &Value) -> bool {
    condition(&pod["status"], "Ready").is_some_and(|ready| text(ready, "status") == "True")
}

/// Whether evicting an unready pod does not count: always, or while enough others are ready.
fn spares_unhealthy(budget: &Value) -> bool {
    let number = |field: &str| integer(&budget["status"], field).unwrap_or_default();
    text(&budget["spec"], "unhealthyPodEvictionPolicy") == "AlwaysAllow"
        || (number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0)
}

fn why_spent(name: &str, status: &Value) -> String {
    let number = |field: &str| integer(status, field).unwrap_or_default();
    let (desired, current) = (number("desiredHealthy"), number("currentHealthy"));
    let told = condition(status, CONDITION).filter(|one| text(one, "status") == "False");
    let told = told.map(|one| (text(one, "reason"), text(one, "message"))).filter(|(_, message)| !message.is_empty());
    match told {
        // The counts mean nothing then.
        Some(("SyncFailed", message)) => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            )
        }
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some((reason, message)) => {
            format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// Sets the condition that the budget is used up (K8s component-helpers apps/poddisruptionbudget).
fn none_left(budget: &mut Value, now: Timestamp) {
    let status = &budget["status"];
    let since = match condition(status, CONDITION) {
        Some(old) if text(old, "status") == "False" => old["lastTransitionTime"].clone(),
        _ => meta::rfc3339(now).into(),
    };
    let mut new = json!({
        "type": CONDITION, "status": "False", "reason": "InsufficientPods", "message": "", "lastTransitionTime": since,
    });
    if let Some(generation) = integer(status, "observedGeneration") {
        new.set("observedGeneration", generation.into());
    }
    let mut all = items(status, "conditions").to_vec();
    match all.iter_mut().find(|one| text(one, "type") == CONDITION) {
        Some(old) => *old = new,
        None => all.push(new),
    }
    budget.set_at(&["status", "conditions"], all.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: &str, ready: bool) -> Value {
        let ready = if ready { "True" } else { "False" };
        json!({"metadata": {"name": "p", "labels": {"app": "a"}},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn budget(status: Value) -> Value {
        let mut budget = json!({"metadata": {"name": "b", "generation": 1}, "spec": {"selector": {}},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 2}});
        json_patch::merge(&mut budget, &status);
        budget
    }

    fn spent(pod: &Value, budget: &Value) -> Result<Option<Value>, Refusal> {
        spend(pod, &[budget], "2026-01-02T03:04:05Z".parse().unwrap())
    }

    #[test]
    fn whom_a_budget_is_for() {
        let pod = pod("Running", true);
        for (selector, right) in [
            (json!({"matchLabels": {"app": "a"}}), true),
            (json!({"matchLabels": {"app": "b"}}), false),
            (json!({}), true),
            (Value::Null, false),
        ] {
            assert_eq!(is_for(&json!({"spec": {"selector": selector}}), &pod), right, "{selector}");
        }
        for (phase, free) in [("Pending", true), ("Failed", true), ("Succeeded", true), ("Running", false)] {
            assert_eq!(needs_none(&json!({"status": {"phase": phase}})), free, "{phase}");
        }
        assert!(needs_none(&json!({"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Running"}})));
    }

    #[test]
    fn the_last_disruption_is_counted_and_told() {
        let two = budget(json!({"status": {"disruptionsAllowed": 2}}));
        let one = spent(&pod("Running", true), &two).unwrap().unwrap();
        assert_eq!((&one["status"]["disruptionsAllowed"], &one["status"]["conditions"]), (&json!(1), &Value::Null));
        assert_eq!(one["status"]["disruptedPods"], json!({"p": "2026-01-02T03:04:05Z"}));
        let none = spent(&pod("Running", true), &one).unwrap().unwrap();
        assert_eq!(none["status"]["disruptionsAllowed"], 0);
        assert_eq!(
            none["status"]["conditions"],
            json!([{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1}])
        );
        assert!(matches!(spent(&pod("Running", true), &none), Err(Refusal::Spent { .. })));
    }

    #[test]
    fn pods_that_are_not_ready_go_while_enough_others_are() {
        let sick = pod("Running", false);
        assert_eq!(spent(&sick, &budget(json!({}))), Ok(None));
        let few = budget(json!({"status": {"currentHealthy": 1}}));
        assert!(matches!(spent(&sick, &few), Err(Refusal::Spent { .. })));
        let always =
            budget(json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, "status": {"currentHealthy": 1}}));
        assert_eq!(spent(&sick, &always), Ok(None));
        assert!(matches!(spent(&pod("Running", true), &always), Err(Refusal::Spent { .. })));
    }

    #[test]
    fn why_a_pod_stays() {
        let of = |status: Value| spent(&pod("Running", true), &budget(json!({ "status": status }))).unwrap_err();
        let told = |status: Value| match of(status) {
            Refusal::Spent { why } => why.replace("The disruption budget b ", ""),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(json!({"currentHealthy": 1})), "needs 2 healthy pods and has 1 currently");
        assert_eq!(told(json!({})), "does not allow evicting pods currently");
        let because = |reason: &str| json!([{"type": CONDITION, "status": "False", "reason": reason, "message": "m"}]);
        let failed = json!({"currentHealthy": 1, "conditions": because("SyncFailed")});
        assert_eq!(told(failed), "does not allow evicting pods currently because it failed sync: m");
        let other = json!({"conditions": because("Other")});
        assert_eq!(told(other), "does not allow evicting pods currently (Other): m");
        assert_eq!(of(json!({"observedGeneration": 0})), Refusal::Processing { budget: "b".into() });
        assert!(matches!(of(json!({"disruptionsAllowed": -1})), Refusal::Broken { .. }));
        let many: serde_json::Map<_, _> = (0..=DISRUPTED_MAX).map(|n| (format!("p{n}"), json!("t"))).collect();
        assert!(matches!(of(json!({"disruptionsAllowed": 1, "disruptedPods": many})), Refusal::Broken { .. }));
        let one = budget(json!({}));
        let two = spend(&pod("Running", true), &[&one, &one], Timestamp::UNIX_EPOCH);
        assert_eq!(two, Err(Refusal::SeveralBudgets));
    }
}
