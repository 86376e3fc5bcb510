//! Whether a container that ended is started again: by its own rules, its own policy, or the pod's. Pure.
//!
//! K8s pkg/api/v1/pod/util.go, `ContainerShouldRestart`. The rule action `RestartAllContainers` is refused at admission.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, PodSpec};

use super::record::{StopReason, Terminated};

/// Whether an exit with `code` is followed by another start.
pub fn restarts_after(spec: &PodSpec, container: &Container, code: i32) -> bool {
    let policy = match own_policy(container) {
        None => spec.restart_policy.as_deref(),
        Some(_) if container.restart_policy_rules.iter().flatten().any(|rule| orders_restart(rule, code)) => {
            return true;
        }
        own => own,
    };
    match policy {
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        _ => true,
    }
}

/// Whether an app container that ended like this is started again: also, whatever its code, when the node ended it for a
/// new definition or a failed probe (K8s pkg/kubelet/kuberuntime, `computePodActions`).
pub fn goes_on(spec: &PodSpec, container: &Container, end: &Terminated) -> bool {
    let policy = own_policy(container).or(spec.restart_policy.as_deref());
    match end.stopped {
        Some(StopReason::SpecChanged) => true,
        Some(StopReason::Liveness | StopReason::Startup) if policy != Some("Never") => true,
        _ => restarts_after(spec, container, end.exit_code),
    }
}

/// Some exit is followed by another start.
pub fn is_restartable(spec: &PodSpec, container: &Container) -> bool {
    match own_policy(container) {
        None => spec.restart_policy.as_deref() != Some("Never"),
        Some(own) => own != "Never" || container.restart_policy_rules.iter().flatten().any(|r| r.action == "Restart"),
    }
}

fn own_policy(container: &Container) -> Option<&str> {
    container.restart_policy.as_deref().filter(|policy| !policy.is_empty())
}

fn orders_restart(rule: &ContainerRestartRule, code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else { return false };
    let named = codes.values.iter().flatten().any(|value| *value == code);
    let matches = match codes.operator.as_str() {
        "In" => named,
        "NotIn" => !named,
        _ => false,
    };
    matches && rule.action == "Restart"
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(policy: Value, rules: Value) -> Container {
        let value = json!({"name": "c", "restartPolicy": policy, "restartPolicyRules": rules});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn rules_come_before_policies_and_the_container_before_the_pod() {
        let pod = |policy: &str| serde_json::from_value(json!({"containers": [], "restartPolicy": policy})).unwrap();
        let never: PodSpec = pod("Never");
        let always: PodSpec = pod("Always");
        let plain = container(Value::Null, Value::Null);
        assert!(!restarts_after(&never, &plain, 1) && restarts_after(&always, &plain, 0));
        let failing = container(json!("OnFailure"), Value::Null);
        assert!(restarts_after(&never, &failing, 1) && !restarts_after(&always, &failing, 0));
        let rule = |operator: &str| json!([{"action": "Restart", "exitCodes": {"operator": operator, "values": [42]}}]);
        let on_42 = container(json!("Never"), rule("In"));
        assert!(restarts_after(&never, &on_42, 42) && !restarts_after(&never, &on_42, 1));
        assert!(is_restartable(&never, &on_42) && !is_restartable(&never, &plain));
        let but_42 = container(json!("Never"), rule("NotIn"));
        assert!(restarts_after(&never, &but_42, 1) && !restarts_after(&never, &but_42, 42));
    }
}
