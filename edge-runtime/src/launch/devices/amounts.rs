//! How many of which extended resources containers and pods ask for, and whether they are there. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::pod::reconcile::Refusal;
use crate::sys::quantity;

/// `example.com/thing`: neither native nor one of Kubernetes' own.
pub fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

/// Extended resources of one container, by name. Limit and request are equal, as the API requires.
pub(super) fn of(container: &Container) -> BTreeMap<String, usize> {
    let resources = container.resources.as_ref();
    let lists = [resources.and_then(|r| r.requests.as_ref()), resources.and_then(|r| r.limits.as_ref())];
    let named = lists.into_iter().flatten().flatten().filter(|(name, _)| is_extended(name));
    let amount = |text: &str| quantity::value(text).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    named.map(|(name, quantity)| (name.clone(), amount(&quantity.0))).filter(|(_, amount)| *amount > 0).collect()
}

/// The most that the pod needs at one time: its app containers and sidecars, or an init container beside the
/// sidecars before it.
fn of_pod(pod: &Pod) -> BTreeMap<String, usize> {
    let Some(spec) = &pod.spec else { return BTreeMap::new() };
    let plus = |mut sum: BTreeMap<String, usize>, more: BTreeMap<String, usize>| {
        more.into_iter().for_each(|(name, amount)| *sum.entry(name).or_default() += amount);
        sum
    };
    let (mut lasting, mut most) = (BTreeMap::new(), BTreeMap::<String, usize>::new());
    let mut keep = |now: &BTreeMap<String, usize>| {
        for (name, amount) in now {
            let most = most.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    };
    for init in spec.init_containers.iter().flatten() {
        if init.restart_policy.as_deref() == Some("Always") {
            lasting = plus(lasting, of(init));
        } else {
            keep(&plus(lasting.clone(), of(init)));
        }
    }
    keep(&spec.containers.iter().fold(lasting, |sum, container| plus(sum, of(container))));
    most
}

/// Refuses `pod` as the kubelet does for any resource (`OutOfNAME`) when this node has too few of one left beside
/// `others`, the pods that have not ended.
pub fn admit<'a>(
    pod: &Pod,
    others: impl Iterator<Item = &'a Pod>,
    capacity: impl FnOnce() -> BTreeMap<String, u64>,
) -> Option<Refusal> {
    let wants = of_pod(pod);
    if wants.is_empty() {
        return None;
    }
    let (has, mut used) = (capacity(), BTreeMap::<String, usize>::new());
    for (name, amount) in others.flat_map(of_pod) {
        *used.entry(name).or_default() += amount;
    }
    wants.into_iter().find_map(|(name, requested)| {
        let used = used.get(&name).copied().unwrap_or(0);
        let capacity = has.get(&name).copied().unwrap_or(0);
        let fits = u64::try_from(used.saturating_add(requested)).is_ok_and(|all| all <= capacity);
        (!fits).then(|| Refusal {
            reason: format!("OutOf{name}"),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        })
    })
}
