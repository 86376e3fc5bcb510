//! Containers and init containers of a pod.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::{env, mount, probe, resources, security};
use apimachinery::field::{Errors, FieldError, invalid_number, invalid_text, one_of, too_many};
use apimachinery::json::{integer, items, present, text};
use apimachinery::names;

const RESTART_POLICIES: &[&str] = &["Always", "Never", "OnFailure"];

/// Facts of the pod for the validation of its containers.
pub(crate) struct PodFacts<'a> {
    pub(crate) volumes: HashMap<&'a str, &'a Value>,
    pub(crate) claims: BTreeSet<&'a str>,
    pub(crate) grace: Option<i64>,
    pub(crate) os: Option<&'a str>,
    pub(crate) restart_policy: &'a str,
    /// False when the pod has its own user namespace.
    pub(crate) host_users: bool,
}

/// `spec.containers`.
pub(crate) fn containers(errors: &mut Errors, path: &str, list: &[Value], pod: &PodFacts<'_>) {
    if list.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut names = HashSet::new();
    for (i, container) in list.iter().enumerate() {
        let path = format!("{path}[{i}]");
        common(errors, &path, container, pod);
        let name = text(container, "name");
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
        probe::lifecycle(errors, &path, container, pod.grace, pod.os);
        probe::probes(errors, &path, container, pod.grace);
        restart_policy(errors, &path, container);
    }
    host_ports(errors, path, list);
}

/// `spec.initContainers`; `regular` are the pod's containers, whose names are in use.
pub(crate) fn init_containers(errors: &mut Errors, path: &str, list: &[Value], regular: &[Value], pod: &PodFacts<'_>) {
    let mut names: HashSet<&str> = regular.iter().map(|c| text(c, "name")).collect();
    for (i, container) in list.iter().enumerate() {
        let at = format!("{path}[{i}]");
        common(errors, &at, container, pod);
        let policy = present(container, "restartPolicy");
        let sidecar = policy.is_some_and(|p| p == "Always");
        restart_policy(errors, &at, container);
        let name = text(container, "name");
        if names.contains(name) {
            errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
        } else if !name.is_empty() {
            names.insert(name);
        }
        host_ports(errors, path, std::slice::from_ref(container));
        if sidecar {
            probe::lifecycle(errors, &at, container, pod.grace, pod.os);
            probe::probes(errors, &at, container, pod.grace);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if present(container, field).is_some() {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.push(FieldError::forbidden(format!("{at}.{field}"), detail));
            }
        }
    }
}

/// One of `spec.ephemeralContainers`, but for its name among others.
pub(crate) fn ephemeral(errors: &mut Errors, path: &str, container: &Value, pod: &PodFacts<'_>) {
    common(errors, path, container, pod);
    let detail = "cannot be set for an Ephemeral Container";
    let given = |value: &Value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    };
    for field in ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources"] {
        if given(&container[field]) {
            errors.push(FieldError::forbidden(format!("{path}.{field}"), detail));
        }
    }
    for (i, mount) in items(container, "volumeMounts").iter().enumerate() {
        for field in ["subPath", "subPathExpr"] {
            if !text(mount, field).is_empty() {
                errors.push(FieldError::forbidden(format!("{path}.volumeMounts[{i}].{field}"), detail));
            }
        }
    }
}

fn common(errors: &mut Errors, path: &str, container: &Value, pod: &PodFacts<'_>) {
    match text(container, "name") {
        "" => errors.push(FieldError::required(format!("{path}.name"), "")),
        name => invalid_text(errors, &format!("{path}.name"), name, names::dns_label(name)),
    }
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    let termination = format!("{path}.terminationMessagePolicy");
    let policy = text(container, "terminationMessagePolicy");
    one_of(errors, termination, policy, &["File", "FallbackToLogsOnError"]);
    ports(errors, &format!("{path}.ports"), container);
    env::env(errors, &format!("{path}.env"), container);
    env::env_from(errors, &format!("{path}.envFrom"), container);
    mount::mounts(errors, path, container, &pod.volumes);
    let pull = text(container, "imagePullPolicy");
    one_of(errors, format!("{path}.imagePullPolicy"), pull, &["Always", "IfNotPresent", "Never"]);
    resources::container(errors, &format!("{path}.resources"), &container["resources"], &pod.claims);
    resize_policy(errors, &format!("{path}.resizePolicy"), container, pod.restart_policy);
    if let Some(context) = present(container, "securityContext") {
        security::container(errors, &format!("{path}.securityContext"), context, pod.host_users);
    }
}

fn ports(errors: &mut Errors, path: &str, container: &Value) {
    let mut seen = HashSet::new();
    for (i, port) in items(container, "ports").iter().enumerate() {
        let path = format!("{path}[{i}]");
        let name = text(port, "name");
        if !name.is_empty() {
            let complaints = names::port_name(name);
            if complaints.is_empty() && !seen.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
            }
            invalid_text(errors, &format!("{path}.name"), name, complaints);
        }
        match integer(port, "containerPort").unwrap_or_default() {
            0 => errors.push(FieldError::required(format!("{path}.containerPort"), "")),
            n => invalid_number(errors, &format!("{path}.containerPort"), n, names::port_number(n)),
        }
        if let Some(n) = integer(port, "hostPort").filter(|n| *n != 0) {
            invalid_number(errors, &format!("{path}.hostPort"), n, names::port_number(n));
        }
        one_of(errors, format!("{path}.protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn host_ports(errors: &mut Errors, path: &str, containers: &[Value]) {
    let mut seen = HashSet::new();
    for (i, container) in containers.iter().enumerate() {
        for (j, port) in items(container, "ports").iter().enumerate() {
            let Some(number) = integer(port, "hostPort").filter(|n| *n != 0) else { continue };
            let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if !seen.insert(key.clone()) {
                errors.push(FieldError::duplicate(format!("{path}[{i}].ports[{j}].hostPort"), &key.into()));
            }
        }
    }
}

fn resize_policy(errors: &mut Errors, path: &str, container: &Value, pod_restart: &str) {
    let mut seen = HashSet::new();
    for (i, policy) in items(container, "resizePolicy").iter().enumerate() {
        let resource = text(policy, "resourceName");
        if !seen.insert(resource) {
            errors.push(FieldError::duplicate(format!("{path}[{i}]"), &resource.into()));
        }
        one_of(errors, path.to_owned(), resource, &["cpu", "memory"]);
        let restart = text(policy, "restartPolicy");
        one_of(errors, path.to_owned(), restart, &["NotRequired", "RestartContainer"]);
        if pod_restart == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(path, &restart.into(), detail));
        }
    }
}

fn restart_policy(errors: &mut Errors, path: &str, container: &Value) {
    let at = format!("{path}.restartPolicy");
    let rules = items(container, "restartPolicyRules");
    match present(container, "restartPolicy").and_then(Value::as_str) {
        None if rules.is_empty() => return,
        None => errors.push(FieldError::required(at, "must specify restartPolicy when restart rules are used")),
        Some(policy) if !RESTART_POLICIES.contains(&policy) => {
            errors.push(FieldError::not_supported(at, &policy.into(), RESTART_POLICIES));
        }
        Some(_) => {}
    }
    let at = format!("{path}.restartPolicyRules");
    if rules.len() > 20 {
        errors.push(too_many(at.clone(), rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let at = format!("{at}[{i}]");
        let action = text(rule, "action");
        let actions = &["Restart", "RestartAllContainers"];
        if !actions.contains(&action) {
            errors.push(FieldError::not_supported(format!("{at}.action"), &action.into(), actions));
        }
        let Some(codes) = present(rule, "exitCodes") else {
            errors.push(FieldError::required(format!("{at}.exitCodes"), "must be specified"));
            continue;
        };
        let operator = text(codes, "operator");
        if !["In", "NotIn"].contains(&operator) {
            let path = format!("{at}.exitCodes.operator");
            errors.push(FieldError::not_supported(path, &operator.into(), &["In", "NotIn"]));
        }
        let values = items(codes, "values").len();
        if values > 255 {
            errors.push(too_many(format!("{at}.exitCodes.values"), values, 255));
        }
    }
}
