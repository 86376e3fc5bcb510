//! How many of which extended resources containers and pods ask for, and whether they are there. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::quantity;
use super::refusal::Refusal;
use super::requests::together;
use super::spec::containers_of;

/// `example.com/thing`: not native or in Kubernetes' own domain.
pub fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

/// Extended resources of one container, by name. Limit and request are equal, as the API requires.
pub fn of(container: &Container) -> BTreeMap<String, usize> {
    let resources = container.resources.as_ref();
    let lists = [resources.and_then(|r| r.requests.as_ref()), resources.and_then(|r| r.limits.as_ref())];
    let named = lists.into_iter().flatten().flatten().filter(|(name, _)| is_extended(name));
    let amount = |text: &str| quantity::value(text).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let mut all = BTreeMap::new();
    all.extend(named.map(|(name, quantity)| (name.clone(), amount(&quantity.0))).filter(|(_, amount)| *amount > 0));
    all
}

/// The most that the pod needs at one time.
pub fn of_pod(pod: &Pod) -> BTreeMap<String, i64> {
    let Some(spec) = &pod.spec else { return BTreeMap::new() };
    let mut names = BTreeSet::new();
    names.extend(containers_of(pod).flat_map(|container| of(container).into_keys()));
    let amount = |container: &Container, name: &str| {
        of(container).get(name).map_or(0, |amount| i64::try_from(*amount).unwrap_or(i64::MAX))
    };
    let most = |name: &str| together(spec, |container| amount(container, name));
    let mut all = BTreeMap::new();
    all.extend(names.into_iter().map(|name| (name.clone(), most(&name))));
    all
}

/// Refuses `pod` as the kubelet does for any resource (`OutOfNAME`) when this node has too few of one left beside
/// `others`, the pods that have not ended. Ignores resources unknown to the node, such as one that an administrator has
/// put into the Node object (K8s pkg/kubelet/lifecycle/predicate.go `removeMissingExtendedResources`).
pub fn admit<'a>(
    pod: &Pod,
    others: impl Iterator<Item = &'a Pod>,
    capacity: impl FnOnce() -> BTreeMap<String, u64>,
) -> Option<Refusal> {
    let wants = of_pod(pod);
    if wants.is_empty() {
        return None;
    }
    let (has, mut used) = (capacity(), BTreeMap::<String, i64>::new());
    for (name, amount) in others.flat_map(of_pod) {
        let used = used.entry(name).or_default();
        *used = used.saturating_add(amount);
    }
    wants.into_iter().find_map(|(name, requested)| {
        let used = used.get(&name).copied().unwrap_or(0);
        let capacity = has.get(&name).map(|amount| i64::try_from(*amount).unwrap_or(i64::MAX))?;
        (used.saturating_add(requested) > capacity).then(|| Refusal::out_of(&name, requested, used, capacity))
    })
}
