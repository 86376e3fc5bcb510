//! Whether a pod still fits on the node beside those that are here, by requests and number. Pure.
//!
//! A scheduler has asked the same before; this holds for pods that name their node themselves, and against races.

use std::borrow::{Borrow, Cow};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};

use super::reconcile::Refusal;
use super::record::{PodRecord, Resources};
use super::together::together;
use crate::sys::quantity;

/// What the node has for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocatable {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub pods: usize,
}

/// Cpu in thousandths and memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requests {
    cpu_milli: i64,
    memory_bytes: i64,
}

impl Requests {
    fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }
}

/// Refuses `pod` as the kubelet does (`OutOfpods`, `OutOfcpu`, `OutOfmemory`) when it does not fit beside
/// `others`, the pods of this node that have not ended, as [`allocated`].
pub fn admit(pod: &Pod, others: impl Iterator<Item = impl Borrow<Pod>>, has: Allocatable) -> Option<Refusal> {
    let (mut used, mut count) = (Requests::default(), 0usize);
    for other in others {
        used = used.plus(requests(other.borrow()));
        count += 1;
    }
    let wants = requests(pod);
    if let Some((name, requested)) = huge_pages(pod) {
        return Some(no_room(&name, requested, 0, 0));
    }
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    [
        ("pods", 1, number(count), number(has.pods)),
        ("cpu", wants.cpu_milli, used.cpu_milli, has.cpu_milli),
        ("memory", wants.memory_bytes, used.memory_bytes, has.memory_bytes),
    ]
    .into_iter()
    .find(|(_, wanted, used, capacity)| *wanted > 0 && wanted.saturating_add(*used) > *capacity)
    .map(|(resource, requested, used, capacity)| no_room(resource, requested, used, capacity))
}

/// The pod with what was given to it: a resize that waits for room takes none (K8s pkg/kubelet/allocation,
/// `UpdatePodFromAllocation`).
pub fn allocated<'a>(pod: &'a Pod, record: &PodRecord) -> Cow<'a, Pod> {
    if record.resize_pending.is_none() {
        return Cow::Borrowed(pod);
    }
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            let given = record.containers.get(&container.name).and_then(|c| c.resources.as_ref());
            container.resources = given.map(Resources::to_api).or(container.resources.take());
        }
    }
    Cow::Owned(pod)
}

fn no_room(resource: &str, requested: i64, used: i64, capacity: i64) -> Refusal {
    Refusal {
        reason: format!("OutOf{resource}"),
        message: format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        ),
    }
}

/// The first kind of huge pages that a container wants, and how many bytes of it: a node here has none to give.
fn huge_pages(pod: &Pod) -> Option<(String, i64)> {
    let spec = pod.spec.as_ref()?;
    let own = spec.init_containers.iter().flatten().chain(&spec.containers).map(|c| c.resources.as_ref());
    own.chain([spec.resources.as_ref()]).flatten().find_map(|resources| {
        let mut amounts = resources.limits.iter().chain(&resources.requests).flatten();
        amounts.find_map(|(name, amount)| {
            let bytes = quantity::value(&amount.0).filter(|bytes| *bytes > 0 && name.starts_with("hugepages-"))?;
            Some((name.clone(), bytes))
        })
    })
}

/// What the whole pod asks for: its app containers and sidecars together, or more while an init container runs
/// beside the sidecars started before it.
fn requests(pod: &Pod) -> Requests {
    let Some(spec) = &pod.spec else { return Requests::default() };
    let sum = Requests {
        cpu_milli: together(spec, |container| of(container).cpu_milli),
        memory_bytes: together(spec, |container| of(container).memory_bytes),
    };
    let whole = requested(spec.resources.as_ref());
    let or = |whole: i64, sum: i64| if whole > 0 { whole } else { sum };
    let all = Requests {
        cpu_milli: or(whole.cpu_milli, sum.cpu_milli),
        memory_bytes: or(whole.memory_bytes, sum.memory_bytes),
    };
    let overhead = |name: &str, read: fn(&str) -> Option<i64>| {
        spec.overhead.as_ref().and_then(|list| read(&list.get(name)?.0)).unwrap_or(0)
    };
    all.plus(Requests {
        cpu_milli: overhead("cpu", quantity::milli),
        memory_bytes: overhead("memory", quantity::value),
    })
}

fn of(container: &Container) -> Requests {
    requested(container.resources.as_ref())
}

fn requested(resources: Option<&ResourceRequirements>) -> Requests {
    let amount = |name: &str, read: fn(&str) -> Option<i64>| {
        let of = |list: Option<&std::collections::BTreeMap<String, _>>| list.and_then(|l| l.get(name).cloned());
        let given = of(resources.and_then(|r| r.requests.as_ref())).or(of(resources.and_then(|r| r.limits.as_ref())));
        given.and_then(|q: k8s_openapi::apimachinery::pkg::api::resource::Quantity| read(&q.0)).unwrap_or(0)
    };
    Requests { cpu_milli: amount("cpu", quantity::milli), memory_bytes: amount("memory", quantity::value) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::record::{ContainerRecord, ResizePending};
    use super::super::testing::{Sim, pod};
    use super::*;
    use crate::pod::record::ContainerKind;

    const HAS: Allocatable = Allocatable { cpu_milli: 1000, memory_bytes: 1000, pods: 3 };

    fn asks(cpu: &str, memory: &str) -> Pod {
        pod(json!({"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}))
    }

    fn reason(pod: &Pod, others: &[Pod]) -> String {
        admit(pod, others.iter(), HAS).map(|r| r.reason).unwrap_or_default()
    }

    #[test]
    fn by_what_is_left() {
        let half = asks("500m", "500");
        assert_eq!(reason(&half, std::slice::from_ref(&half)), "");
        assert_eq!(reason(&asks("501m", "1"), std::slice::from_ref(&half)), "OutOfcpu");
        assert_eq!(reason(&asks("1m", "501"), std::slice::from_ref(&half)), "OutOfmemory");
        let none = pod(json!({"containers": [{"name": "c", "image": "i"}]}));
        assert_eq!(reason(&none, &[half.clone(), half.clone()]), "");
        assert_eq!(reason(&none, &[none.clone(), none.clone(), none.clone()]), "OutOfpods");
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
        assert_eq!(requests(&allocated(&wants, &record)).cpu_milli, 700, "it has been let in");
        let message = "no room".to_owned();
        record.resize_pending = Some(ResizePending { reason: "OutOfcpu".into(), message });
        assert_eq!(requests(&allocated(&wants, &record)).cpu_milli, 100);
    }

    #[test]
    fn there_are_no_huge_pages() {
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
            assert_eq!(requests(&pod).cpu_milli, expected);
        }
    }
}
