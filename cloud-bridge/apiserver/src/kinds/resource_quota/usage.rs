//! Usage of a namespace's quotas by an object, and the matching scopes. Pure. Follows pkg/quota/v1/evaluator/core; a
//! resource is named as `pods` or `deployments.apps`.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::kinds::pod::amounts::{Amounts, add, amounts, total};
use crate::kinds::pod::qos;
use apimachinery::json::{integer, items, present, text};
use apimachinery::quantity::Quantity;
use apimachinery::{meta, selector};

const PODS: &str = "pods";
const SERVICES: &str = "services";
const CLAIMS: &str = "persistentvolumeclaims";
/// Kinds that have a name in quotas beside that of their count.
const COUNTED: &[&str] = &["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];
/// Resources of a container, which quotas limit by their requests and by their limits.
const COMPUTE: &[&str] = &["cpu", "memory", "ephemeral-storage"];
const HUGE: &str = "hugepages-";
const BY_CLASS: &str = ".storageclass.storage.k8s.io/";

/// Whether objects of a resource count for this name in a quota.
pub(crate) fn takes(resource: &str, name: &str) -> bool {
    if name.strip_prefix("count/") == Some(resource) {
        return true;
    }
    match resource {
        PODS => {
            let plain = name.strip_prefix("requests.").or(name.strip_prefix("limits.")).unwrap_or(name);
            let request = name.strip_prefix("requests.");
            name == PODS
                || COMPUTE.contains(&plain)
                || name.starts_with(HUGE)
                || request.is_some_and(|name| name.starts_with(HUGE) || extended(name))
        }
        SERVICES => matches!(name, SERVICES | "services.nodeports" | "services.loadbalancers"),
        CLAIMS => matches!(name.rsplit_once(BY_CLASS).map_or(name, |(_, what)| what), CLAIMS | "requests.storage"),
        _ => COUNTED.contains(&resource) && name == resource,
    }
}

/// Whether this is an extended resource: its domain is not Kubernetes'.
fn extended(name: &str) -> bool {
    name.contains('/') && (!name.contains("kubernetes.io/") || name.starts_with("deviceclass.resource.kubernetes.io/"))
}

/// Whether the usage of an object depends on more than that it exists.
pub(crate) fn measured(resource: &str) -> bool {
    [PODS, SERVICES, CLAIMS].contains(&resource)
}

/// Usage of one object; of a kind that is not [`measured`] its metadata is enough.
pub(crate) fn usage(resource: &str, object: &Value, now: Timestamp) -> Amounts {
    let mut used = Amounts::new();
    let mut set = |name: String, number: i64| {
        used.insert(name, Quantity::from_units(number));
    };
    set(format!("count/{resource}"), 1);
    match resource {
        PODS if pod_counts(object, now) => used.extend(pod(&object["spec"])),
        SERVICES => {
            let (ports, balancers) = service(&object["spec"]);
            set(SERVICES.into(), 1);
            set("services.nodeports".into(), ports);
            set("services.loadbalancers".into(), balancers);
        }
        CLAIMS => used.extend(claim(object)),
        _ if COUNTED.contains(&resource) => set(resource.to_owned(), 1),
        _ => {}
    }
    used
}

/// Whether a pod uses quota: not after it has ended or its deletion time has passed.
pub(crate) fn pod_counts(pod: &Value, now: Timestamp) -> bool {
    if matches!(text(&pod["status"], "phase"), "Failed" | "Succeeded") {
        return false;
    }
    let due = meta::text(pod, "deletionTimestamp").parse::<Timestamp>().ok();
    let Some((due, grace)) = due.zip(meta::grace(pod)) else { return true };
    due.checked_add(SignedDuration::from_secs(grace)).is_ok_and(|end| now <= end)
}

fn pod(spec: &Value) -> Amounts {
    let levels: fn(&str) -> bool = |name| matches!(name, "cpu" | "memory") || name.starts_with(HUGE);
    let (mut requests, mut limits) = (total(spec, "requests", levels), total(spec, "limits", levels));
    let overhead = amounts(spec, "overhead");
    add(&mut requests, &overhead);
    let limited: Amounts = overhead.into_iter().filter(|(name, _)| limits.contains_key(name)).collect();
    add(&mut limits, &limited);
    compute(&requests, &limits)
}

/// The names that requests and limits have in quotas.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([(PODS.to_owned(), Quantity::from_units(1))]);
    for (name, amount) in requests {
        let bare = COMPUTE.contains(&name.as_str()) || name.starts_with(HUGE);
        if bare {
            used.insert(name.clone(), *amount);
        }
        if bare || extended(name) {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| COMPUTE.contains(&name.as_str())) {
        used.insert(format!("limits.{name}"), *amount);
    }
    used
}

/// Resources that the containers of a pod must set because a quota limits them, with those that do not.
pub(crate) fn unnamed(pod: &Value, limited: &[&str]) -> Vec<(String, Vec<String>)> {
    const NEEDED: &[&str] = &["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    let spec = &pod["spec"];
    let whole = ["requests", "limits"].iter().flat_map(|list| amounts(&spec["resources"], list).into_keys());
    if whole.into_iter().any(|name| matches!(name.as_str(), "cpu" | "memory") || name.starts_with(HUGE)) {
        return Vec::new();
    }
    let containers: Vec<(&str, Amounts)> = items(spec, "containers")
        .iter()
        .chain(items(spec, "initContainers"))
        .map(|one| {
            let of = |list: &str| amounts(&one["resources"], list);
            (text(one, "name"), compute(&of("requests"), &of("limits")))
        })
        .collect();
    let mut missing = Vec::new();
    for name in NEEDED.iter().filter(|name| limited.contains(name)) {
        let without = containers.iter().filter(|(_, named)| !named.contains_key(*name));
        let mut without: Vec<String> = without.map(|(container, _)| (*container).to_owned()).collect();
        without.sort_unstable();
        without.dedup();
        if !without.is_empty() {
            missing.push(((*name).to_owned(), without));
        }
    }
    missing
}

/// Node ports and load balancers of a service, as it wants them.
fn service(spec: &Value) -> (i64, i64) {
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let ports = items(spec, "ports");
    match text(spec, "type") {
        "NodePort" => (count(ports.len()), 0),
        "LoadBalancer" if spec["allocateLoadBalancerNodePorts"] == false => {
            (count(ports.iter().filter(|port| integer(port, "nodePort").is_some_and(|port| port != 0)).count()), 1)
        }
        "LoadBalancer" => (count(ports.len()), 1),
        _ => (0, 0),
    }
}

fn claim(claim: &Value) -> Amounts {
    let one = Quantity::from_units(1);
    let asked = Quantity::from_value(&claim["spec"]["resources"]["requests"]["storage"]);
    let had = Quantity::from_value(&claim["status"]["allocatedResources"]["storage"]);
    let size = asked.map(|asked| had.map_or(asked, |had| had.max(asked)));
    let size = size.map(|size| if size.is_integer() { size } else { Quantity::from_units(size.units()) });
    let old = text(&claim["metadata"]["annotations"], "volume.beta.kubernetes.io/storage-class");
    let class = if old.is_empty() { text(&claim["spec"], "storageClassName") } else { old };
    let mut used = Amounts::from([(CLAIMS.to_owned(), one)]);
    used.extend(size.map(|size| ("requests.storage".to_owned(), size)));
    if !class.is_empty() {
        used.insert(format!("{class}{BY_CLASS}{CLAIMS}"), one);
        used.extend(size.map(|size| (format!("{class}{BY_CLASS}requests.storage"), size)));
    }
    used
}

/// Whether the scopes of a quota choose an object.
pub(crate) fn in_scope(resource: &str, quota: &Value, object: &Value) -> bool {
    let spec = &quota["spec"];
    let exists = Value::from("Exists");
    let plain = items(spec, "scopes").iter().filter_map(Value::as_str).all(|scope| {
        let requirement = serde_json::json!({"scopeName": scope, "operator": exists});
        chooses(resource, &requirement, object)
    });
    plain && items(&spec["scopeSelector"], "matchExpressions").iter().all(|one| chooses(resource, one, object))
}

fn chooses(resource: &str, requirement: &Value, object: &Value) -> bool {
    let spec = &object["spec"];
    match (resource, text(requirement, "scopeName")) {
        (PODS, "Terminating") => terminating(object),
        (PODS, "NotTerminating") => !terminating(object),
        (PODS, "BestEffort") => qos::class(spec) == "BestEffort",
        (PODS, "NotBestEffort") => qos::class(spec) != "BestEffort",
        (PODS, "CrossNamespacePodAffinity") => across_namespaces(&spec["affinity"]),
        (PODS, "PriorityClass") => {
            selector::meets(requirement, Some(text(spec, "priorityClassName")).filter(|name| !name.is_empty()))
        }
        (CLAIMS, "VolumeAttributesClass") => {
            let status = &object["status"];
            let classes = [
                text(spec, "volumeAttributesClassName"),
                text(status, "currentVolumeAttributesClassName"),
                text(&status["modifyVolumeStatus"], "targetVolumeAttributesClassName"),
            ];
            let mut named = classes.into_iter().filter(|name| !name.is_empty()).peekable();
            if named.peek().is_none() {
                return selector::meets(requirement, None);
            }
            named.any(|name| selector::meets(requirement, Some(name)))
        }
        _ => false,
    }
}

/// Whether a pod ends by itself after some time.
pub(crate) fn terminating(pod: &Value) -> bool {
    integer(&pod["spec"], "activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

fn across_namespaces(affinity: &Value) -> bool {
    let across = |term: &Value| !items(term, "namespaces").is_empty() || present(term, "namespaceSelector").is_some();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let kind = &affinity[*kind];
        let required = items(kind, "requiredDuringSchedulingIgnoredDuringExecution").iter().any(across);
        let preferred = items(kind, "preferredDuringSchedulingIgnoredDuringExecution").iter();
        required || preferred.map(|one| &one["podAffinityTerm"]).any(across)
    })
}
