//! Quality of service class of a pod, from its containers' requests and limits. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::quantity;
use super::spec::containers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    pub fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// Class of the pod, as the API server computes `status.qosClass`: by cpu and memory of all containers.
/// A limit without a request is its own request.
pub fn qos_class(pod: &Pod) -> QosClass {
    let Some(spec) = &pod.spec else { return QosClass::BestEffort };
    let (mut any, mut guaranteed) = (false, true);
    // Resources of the pod as a whole replace those of its containers.
    let whole = spec.resources.as_ref().filter(|r| r.requests.is_some() || r.limits.is_some());
    let all: Vec<_> = match whole {
        Some(whole) => vec![Some(whole)],
        None => containers(spec).map(|container| container.resources.as_ref()).collect(),
    };
    for resources in all {
        let limits = resources.and_then(|r| r.limits.as_ref());
        let requests = resources.and_then(|r| r.requests.as_ref());
        for resource in ["cpu", "memory"] {
            let limit = amount(limits, resource);
            let request = amount(requests, resource).or(limit);
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// Thousandths of the resource; zero counts as not given.
fn amount(list: Option<&BTreeMap<String, Quantity>>, resource: &str) -> Option<i64> {
    quantity::milli(&list?.get(resource)?.0).filter(|milli| *milli > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::pod;
    use super::*;

    #[test]
    fn classes() {
        let both = |l: Value, r: Value| json!({"limits": l, "requests": r});
        let full = || json!({"cpu": "1", "memory": "64Mi"});
        for (resources, class) in [
            (vec![json!({})], QosClass::BestEffort),
            (vec![both(json!({"cpu": "0"}), json!({}))], QosClass::BestEffort),
            (vec![both(full(), full())], QosClass::Guaranteed),
            (vec![both(full(), json!({"cpu": "1000m", "memory": "65536Ki"}))], QosClass::Guaranteed),
            (vec![both(full(), json!({}))], QosClass::Guaranteed),
            (vec![both(full(), full()), json!({})], QosClass::Burstable),
            (vec![both(full(), json!({"cpu": "500m"}))], QosClass::Burstable),
            (vec![both(json!({"memory": "64Mi"}), json!({}))], QosClass::Burstable),
            (vec![both(json!({}), json!({"cpu": "10m"}))], QosClass::Burstable),
        ] {
            let containers: Vec<Value> =
                resources.iter().map(|r| json!({"name": "c", "image": "i", "resources": r})).collect();
            assert_eq!(qos_class(&pod(json!({ "containers": containers }))), class, "{resources:?}");
        }
    }
}
