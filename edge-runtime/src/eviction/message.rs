//! Status message of an evicted pod, in the kubelet's words (K8s pkg/kubelet/eviction/helpers.go). Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::rank::Usage;
use super::signal::{Observations, Signal};
use super::threshold::Threshold;
use crate::pod::quantity;
use crate::pod::spec::containers_of;
use crate::sys::walk::{Bound, DEEPEST};

/// Ended because `reclaim` ran short; `met` are all thresholds met at that moment.
pub fn node_low(reclaim: Signal, met: &[Threshold], seen: &Observations, pod: &Pod, usage: &Usage) -> String {
    let resource = reclaim.resource();
    let mut text = format!("The node was low on resource: {resource}. ");
    let first = met.iter().find(|threshold| threshold.signal.resource() == resource);
    if let Some((threshold, seen)) = first.and_then(|threshold| Some((threshold, seen.get(threshold.signal)?))) {
        let say = |amount| if reclaim.in_bytes() { quantity::binary(amount) } else { quantity::decimal(amount) };
        let (quantity, available) = (say(threshold.amount.of(seen.capacity)), say(seen.available));
        text += &format!("Threshold quantity: {quantity}, available: {available}. ");
    }
    if !matches!(resource, "memory" | "ephemeral-storage") {
        return text;
    }
    for (name, used) in &usage.containers {
        let Some(container) = containers_of(pod).find(|container| container.name == *name) else { continue };
        let request = container.resources.as_ref().and_then(|all| all.requests.as_ref()?.get(resource));
        let bytes = request.and_then(|one| quantity::value(&one.0)).and_then(|one| u64::try_from(one).ok());
        if *used > bytes.unwrap_or(0) {
            let request = request.map_or("0", |one| &one.0);
            let used = quantity::binary(*used);
            text += &format!(
                "Container {name} was using {used}, request is {request}, has larger consumption of {resource}. "
            );
        }
    }
    text
}

/// An emptyDir holds more than its `sizeLimit`.
pub fn empty_dir(volume: &str, limit: &str) -> String {
    format!("Usage of EmptyDir volume {volume:?} exceeds the limit {limit:?}. ")
}

/// All a pod wrote is more than its containers' limits together.
pub fn pod_storage(limit: u64) -> String {
    format!("Pod ephemeral local storage usage exceeds the total limit of containers {}. ", quantity::binary(limit))
}

/// A container's writable layer and logs are more than its limit.
pub fn container_storage(container: &str, limit: &str) -> String {
    format!("Container {container} exceeded its local ephemeral storage limit {limit:?}. ")
}

/// A pod with limits has files that cannot all be counted: no more than `entries`, and in no more time than `longest`.
pub fn beyond(bound: Bound, entries: u64, longest: Duration) -> String {
    let what = match bound {
        Bound::Entries => format!("it has more than {entries} files and folders"),
        Bound::Depth => format!("its folders lie more than {DEEPEST} folders deep"),
        Bound::Time => format!("counting its files takes more than {} s", longest.as_secs()),
    };
    format!("Pod ephemeral local storage usage cannot be measured and counts as over the limit: {what}. ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::threshold::Amount;
    use super::*;

    #[test]
    fn the_message_names_threshold_and_culprits() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
            {"name": "a", "image": "i", "resources": {"requests": {"memory": "1Mi"}}},
            {"name": "b", "image": "i"},
            {"name": "c", "image": "i", "resources": {"requests": {"memory": "5Mi"}}}]}}))
        .unwrap();
        let met = [Threshold { signal: Signal::MemoryAvailable, amount: Amount::Absolute(100 << 20) }];
        let mut seen = Observations::default();
        seen.set(Signal::MemoryAvailable, 12 << 10, 1 << 30);
        let containers = [("a", 2 << 20), ("b", 1234), ("c", 5 << 20), ("x", 1)];
        let containers = containers.into_iter().map(|(name, used)| (name.to_owned(), used)).collect();
        let usage = Usage { total: Some(0), containers };
        assert_eq!(
            node_low(Signal::MemoryAvailable, &met, &seen, &pod, &usage),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 12Ki. \
             Container a was using 2Mi, request is 1Mi, has larger consumption of memory. \
             Container b was using 1234, request is 0, has larger consumption of memory. "
        );
        let met = [Threshold { signal: Signal::NodeFsInodesFree, amount: Amount::percent(5) }];
        seen.set(Signal::NodeFsInodesFree, 7000, 1_000_000);
        assert_eq!(
            node_low(Signal::NodeFsInodesFree, &met, &seen, &pod, &usage),
            "The node was low on resource: inodes. Threshold quantity: 50k, available: 7k. "
        );
        assert_eq!(empty_dir("v", "1Mi"), "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ");
    }
}
