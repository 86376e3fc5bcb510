//! Whether a pod still fits on the node beside those that are here, by requests and number. Pure.
//!
//! A scheduler has asked the same before; this holds for pods that name their node themselves, and against races.

use std::borrow::{Borrow, Cow};

use k8s_openapi::api::core::v1::Pod;

use super::quantity;
use super::record::{PodRecord, Resources};
use super::refusal::Refusal;
use super::requests::pod_request;
use super::spec::containers;

/// What the node has for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocatable {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub pods: usize,
}

/// Refuses `pod` as the kubelet does (`OutOfpods`, `OutOfcpu`, `OutOfmemory`) when it does not fit beside
/// `others`, the pods of this node that have not ended, as [`allocated`].
pub fn admit(pod: &Pod, others: impl Iterator<Item = impl Borrow<Pod>>, has: Allocatable) -> Option<Refusal> {
    let [wanted_cpu, wanted_memory] = ["cpu", "memory"].map(|resource| pod_request(pod, resource));
    let (mut cpu, mut memory, mut count) = (0i64, 0i64, 0usize);
    for other in others {
        // A resource that the pod does not ask for is not summed up: that reads the quantities of all pods.
        if wanted_cpu > 0 {
            cpu = cpu.saturating_add(pod_request(other.borrow(), "cpu"));
        }
        if wanted_memory > 0 {
            memory = memory.saturating_add(pod_request(other.borrow(), "memory"));
        }
        count += 1;
    }
    if let Some((name, requested)) = huge_pages(pod) {
        return Some(Refusal::out_of(&name, requested, 0, 0));
    }
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    [
        ("pods", 1, number(count), number(has.pods)),
        ("cpu", wanted_cpu, cpu, has.cpu_milli),
        ("memory", wanted_memory, memory, has.memory_bytes),
    ]
    .into_iter()
    .find(|(_, wanted, used, capacity)| *wanted > 0 && wanted.saturating_add(*used) > *capacity)
    .map(|(resource, requested, used, capacity)| Refusal::out_of(resource, requested, used, capacity))
}

/// Returns the pod with its allocated resources: a pending resize is not included (K8s pkg/kubelet/allocation,
/// `UpdatePodFromAllocation`).
pub fn allocated<'a>(pod: &'a Pod, record: &PodRecord) -> Cow<'a, Pod> {
    if record.resize_pending.is_none() {
        return Cow::Borrowed(pod);
    }
    // By way of JSON, for which the code is there: that of a clone would be tens of kilobytes for this case alone.
    let Some(mut own) = serde_json::to_value(pod).and_then(serde_json::from_value::<Pod>).ok() else {
        return Cow::Borrowed(pod);
    };
    if let Some(spec) = &mut own.spec {
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            let given = record.containers.get(&container.name).and_then(|c| c.resources.as_ref());
            container.resources = given.map(Resources::to_api).or(container.resources.take());
        }
    }
    Cow::Owned(own)
}

/// The first kind of huge pages that a container wants, and its bytes: this node offers none.
fn huge_pages(pod: &Pod) -> Option<(String, i64)> {
    let spec = pod.spec.as_ref()?;
    let own = containers(spec).map(|c| c.resources.as_ref());
    own.chain([spec.resources.as_ref()]).flatten().find_map(|resources| {
        let mut amounts = resources.limits.iter().chain(&resources.requests).flatten();
        amounts.find_map(|(name, amount)| {
            let bytes = quantity::value(&amount.0).filter(|bytes| *bytes > 0 && name.starts_with("hugepages-"))?;
            Some((name.clone(), bytes))
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::record::ContainerRecord;
    use super::super::testing::{Sim, pod};
    use super::*;
    use crate::record::ContainerKind;

    const HAS: Allocatable = Allocatable { cpu_milli: 1000, memory_bytes: 1000, pods: 3 };

    fn asks(cpu: &str, memory: &str) -> Pod {
        pod(json!({"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}))
    }

    fn reason(pod: &Pod, others: &[Pod]) -> String {
        admit(pod, others.iter(), HAS).map(|r| r.reason).unwrap_or_default()
    }

    #[test]
    fn pod_must_fit_remaining_resources() {
        let half = asks("500m", "500");
        assert_eq!(reason(&half, std::slice::from_ref(&half)), "");
        assert_eq!(reason(&asks("501m", "1"), std::slice::from_ref(&half)), "OutOfcpu");
        assert_eq!(reason(&asks("1m", "501"), std::slice::from_ref(&half)), "OutOfmemory");
        let none = pod(json!({"containers": [{"name": "c", "image": "i"}]}));
        assert_eq!(reason(&none, &[half.clone(), half.clone()]), "");
        assert_eq!(reason(&none, &[none.clone(), none.clone(), none.clone()]), "OutOfpods");
        let full = asks("1", "1000");
        assert_eq!(reason(&none, std::slice::from_ref(&full)), "", "it asks for nothing");
        assert_eq!(reason(&asks("0", "1"), std::slice::from_ref(&full)), "OutOfmemory");
        assert_eq!(reason(&asks("1m", "0"), std::slice::from_ref(&full)), "OutOfcpu");
        let refused = admit(&asks("2", "1"), std::iter::empty::<&Pod>(), HAS).unwrap();
        assert_eq!(refused.message, "Node didn't have enough resource: cpu, requested: 2000, used: 0, capacity: 1000");
    }

    #[test]
    fn a_resize_that_waits_for_room_takes_none() {
        let (running, wants) = (asks("100m", "100"), asks("700m", "100"));
        let mut record = Sim::new(running.clone()).record;
        let mut container = ContainerRecord::new(ContainerKind::App);
        container.resources = Some(Resources::of(&running.spec.unwrap().containers[0]));
        record.containers.insert("c".into(), container);
        assert_eq!(pod_request(&allocated(&wants, &record), "cpu"), 700, "it has been let in");
        let message = "no room".to_owned();
        record.resize_pending = Some(Refusal { reason: "OutOfcpu".into(), message });
        assert_eq!(pod_request(&allocated(&wants, &record), "cpu"), 100);
    }

    #[test]
    fn huge_pages_are_refused() {
        let huge = pod(json!({"containers": [{"name": "c", "image": "i",
            "resources": {"limits": {"hugepages-2Mi": "4Mi", "memory": "1"}}}]}));
        let refused = admit(&huge, std::iter::empty::<&Pod>(), HAS).unwrap();
        assert_eq!(refused.reason, "OutOfhugepages-2Mi");
        assert!(refused.message.ends_with("hugepages-2Mi, requested: 4194304, used: 0, capacity: 0"), "{refused:?}");
    }

    #[test]
    fn init_containers_count_while_they_run() {
        let c = |name: &str, cpu: &str, policy: Option<&str>| json!({"name": name, "image": "i", "restartPolicy": policy, "resources": {"limits": {"cpu": cpu}}});
        for (first, second, expected) in [
            (c("i", "700m", None), c("s", "100m", Some("Always")), 700),
            (c("s", "100m", Some("Always")), c("i", "700m", None), 800),
            (c("s", "900m", Some("Always")), c("i", "10m", None), 1200),
        ] {
            let pod = pod(json!({"initContainers": [first, second], "containers": [c("c", "300m", None)]}));
            assert_eq!(pod_request(&pod, "cpu"), expected);
        }
    }
}
