//! The order of eviction in a shortage. Pure.

use k8s_openapi::api::core::v1::Pod;

use super::signal::Signal;
use crate::pod::requests::pod_request;
use crate::sys::sort::sort_by_key;

const MEMORY: &str = "memory";

/// A pod's use of the resource that runs short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of memory or disk, inodes, or processes, of the whole pod. `None` when it could not be found out, see
    /// [`rank`].
    pub total: Option<u64>,
    /// Use by container name, if known.
    pub containers: Vec<(String, u64)>,
}

/// One pod that could be ended.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    pub uid: &'a str,
    pub pod: &'a Pod,
    pub usage: Usage,
}

/// Orders by: uses more than it requested, then low priority, then how much more (K8s pkg/kubelet/eviction
/// `rankMemoryPressure`, `rankDiskPressureFunc`); for processes by priority and number (`rankPIDPressure`).
///
/// Sorts pods for eviction. A pod that could not be measured is first, as with the kubelet; for processes, first of its
/// priority. For the disk it is omitted: measuring fails because of other pods, too, and must not end this one.
pub fn rank(candidates: &mut Vec<Candidate<'_>>, signal: Signal) {
    if signal.is_of_disk() {
        candidates.retain(|candidate| candidate.usage.total.is_some());
    }
    sort_by_key(candidates, |candidate| {
        let priority = candidate.pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        let used = candidate.usage.total.map(i128::from);
        if signal == Signal::PidAvailable {
            return (true, false, priority, used.map_or(i128::MIN, |used| -used));
        }
        let Some(used) = used else { return (false, false, priority, i128::MIN) };
        // Inodes are not requested, so every use is more; the kubelet then takes off the request for bytes.
        let request = i128::from(pod_request(candidate.pod, resource(signal)));
        let within = match signal {
            Signal::NodeFsInodesFree | Signal::ImageFsInodesFree => used == 0,
            _ => used <= request,
        };
        (true, within, priority, request - used)
    });
}

fn resource(signal: Signal) -> &'static str {
    if signal == Signal::MemoryAvailable { MEMORY } else { "ephemeral-storage" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(priority: i32, memory: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"priority": priority, "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"memory": memory}}}]}}))
        .unwrap()
    }

    fn order(pods: &[(&'static str, i32, &str, Option<u64>)], signal: Signal) -> Vec<&'static str> {
        let made: Vec<Pod> = pods.iter().map(|(_, priority, memory, _)| pod(*priority, memory)).collect();
        let usage = |total| Usage { total, containers: Vec::new() };
        let mut all: Vec<Candidate<'_>> = pods
            .iter()
            .zip(&made)
            .map(|((uid, _, _, used), pod)| Candidate { uid, pod, usage: usage(*used) })
            .collect();
        rank(&mut all, signal);
        all.iter().map(|one| pods.iter().find(|pod| pod.0 == one.uid).unwrap().0).collect()
    }

    #[test]
    fn memory_goes_by_request_then_priority_then_excess() {
        let pods = [
            ("within", 0, "100", Some(100)),
            ("far-over", 0, "0", Some(90)),
            ("over", 0, "50", Some(60)),
            ("over-but-important", 7, "50", Some(1000)),
            ("unknown", 9, "50", None),
            ("well-within", 0, "100", Some(1)),
        ];
        let expected = ["unknown", "far-over", "over", "over-but-important", "within", "well-within"];
        assert_eq!(order(&pods, Signal::MemoryAvailable), expected);
    }

    #[test]
    fn request_includes_sidecars_beside_init_containers() {
        let asks = |bytes: &str| json!({"requests": {"memory": bytes, "ephemeral-storage": bytes}});
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "initContainers": [
                {"name": "s", "image": "i", "restartPolicy": "Always", "resources": asks("5")},
                {"name": "i", "image": "i", "resources": asks("10")}],
            "containers": [{"name": "c", "image": "i", "resources": asks("1")}]}}))
        .unwrap();
        assert_eq!((pod_request(&pod, "memory"), pod_request(&pod, "ephemeral-storage")), (15, 15));
        let mut whole = pod;
        let spec = whole.spec.as_mut().unwrap();
        spec.resources = serde_json::from_value(asks("100")).unwrap();
        spec.overhead = serde_json::from_value(json!({"memory": "7"})).unwrap();
        assert_eq!((pod_request(&whole, "memory"), pod_request(&whole, "ephemeral-storage")), (107, 15));
    }

    #[test]
    fn unmeasured_pod_is_not_evicted_for_disk() {
        let pods = [("unknown", 0, "0", None), ("small", 0, "0", Some(1)), ("large", 0, "0", Some(9))];
        for signal in [Signal::NodeFsAvailable, Signal::ImageFsAvailable, Signal::NodeFsInodesFree] {
            assert_eq!(order(&pods, signal), ["large", "small"], "{}", signal.name());
        }
        assert_eq!(order(&pods[..1], Signal::ImageFsInodesFree), [""; 0], "nobody, if nothing was measured");
    }

    #[test]
    fn processes_go_by_priority_then_number() {
        let pods = [
            ("vital-unknown", 1, "0", None),
            ("few", 0, "0", Some(2)),
            ("many", 0, "0", Some(200)),
            ("vital", 1, "0", Some(9999)),
            ("unknown", 0, "0", None),
        ];
        assert_eq!(order(&pods, Signal::PidAvailable), ["unknown", "many", "few", "vital-unknown", "vital"]);
    }
}
