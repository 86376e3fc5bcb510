//! Compares two readings of the counters: CPU use in between, and the order of rows. Pure.

use std::cmp::Reverse;
use std::time::Duration;

use super::look::{Look, Node, PodLook};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Cpu,
    Memory,
    Name,
}

/// Rates are thousandths of one CPU.
pub(crate) struct View {
    pub(crate) node: Node,
    pub(crate) node_milli: Option<u64>,
    pub(crate) pods: Vec<PodView>,
}

pub(crate) struct PodView {
    pub(crate) pod: PodLook,
    pub(crate) milli: Option<u64>,
    /// CPU use by container, in their order.
    pub(crate) container_millis: Vec<Option<u64>>,
}

impl View {
    pub(crate) fn of(before: &Look, now: &Look, order: Order) -> Self {
        let time = now.at.saturating_duration_since(before.at);
        let mut pods: Vec<PodView> = now.pods.iter().map(|pod| pod_view(before, pod, time)).collect();
        pods.sort_by(|a, b| (&a.pod.namespace, &a.pod.name).cmp(&(&b.pod.namespace, &b.pod.name)));
        match order {
            Order::Cpu => pods.sort_by_key(|one| Reverse(one.milli)),
            Order::Memory => pods.sort_by_key(|one| Reverse(one.pod.memory_bytes)),
            Order::Name => {}
        }
        Self { node_milli: rate(before.node.cpu_nanos, now.node.cpu_nanos, time), node: now.node.clone(), pods }
    }
}

fn pod_view(before: &Look, pod: &PodLook, time: Duration) -> PodView {
    let old = before.pods.iter().find(|one| one.uid == pod.uid);
    let container_millis = pod.containers.iter().map(|container| {
        let old = old.and_then(|old| old.containers.iter().find(|one| one.id == container.id && !one.id.is_empty()));
        rate(old.and_then(|old| old.cpu_nanos), container.cpu_nanos, time)
    });
    PodView {
        milli: rate(old.and_then(|old| old.cpu_nanos), pod.cpu_nanos, time),
        container_millis: container_millis.collect(),
        pod: pod.clone(),
    }
}

/// `None` without an earlier value, or after a counter restarted.
fn rate(before: Option<u64>, now: Option<u64>, time: Duration) -> Option<u64> {
    let used = u128::from(now?.checked_sub(before?)?);
    u64::try_from(used * 1000 / time.as_nanos().max(1)).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::look::ContainerLook;
    use super::*;

    fn look(at: Instant, pods: &[(&str, &str, u64, u64)]) -> Look {
        let pods = pods.iter().map(|(name, id, cpu, memory)| PodLook {
            namespace: "default".into(),
            name: (*name).into(),
            uid: (*name).into(),
            cpu_nanos: Some(*cpu),
            memory_bytes: Some(*memory),
            containers: vec![ContainerLook { id: (*id).into(), cpu_nanos: Some(*cpu), ..ContainerLook::default() }],
        });
        Look { at, node: Node { cpu_nanos: Some(0), ..Node::default() }, pods: pods.collect() }
    }

    #[test]
    fn rates_need_an_earlier_value_and_rows_are_sorted() {
        let at = Instant::now();
        let before = look(at, &[("a", "1", 1_000, 5), ("b", "2", 0, 9)]);
        let now = look(
            at + Duration::from_secs(2),
            &[("a", "1", 1_000_001_000, 5), ("b", "3", 200_000_000, 9), ("c", "4", 7, 1)],
        );
        let view = View::of(&before, &now, Order::Cpu);
        let shown: Vec<_> =
            view.pods.iter().map(|one| (one.pod.name.as_str(), one.milli, one.container_millis[0])).collect();
        assert_eq!(shown, [("a", Some(500), Some(500)), ("b", Some(100), None), ("c", None, None)]);
        let names =
            |order| View::of(&before, &now, order).pods.iter().map(|one| one.pod.name.clone()).collect::<String>();
        assert_eq!((names(Order::Memory).as_str(), names(Order::Name).as_str()), ("bac", "abc"));
        assert_eq!(rate(Some(5), Some(4), Duration::from_secs(1)), None, "a counter that began again");
        assert_eq!(rate(Some(0), Some(u64::MAX), Duration::ZERO), None);
    }
}
