//! Which policies are for which pods of this node. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::bounds::POLICIES_OF_A_NAMESPACE;
use super::peers::LocalPod;
use super::view::Policy;
use super::world::{Name, World};
use crate::sys::gather::Gather;
use crate::sys::sort::sort_by_key;

pub(super) type Chosen<'a> = Vec<(&'a LocalPod, Vec<(&'a Name, &'a Policy)>)>;

/// Returns the pods of this node that policies select. Namespaces with few rules come first: they get their rules when
/// the limit does not permit all.
pub(super) fn in_force<'a>(world: &World<'a>) -> (Chosen<'a>, BTreeMap<Name, String>) {
    let mut namespaces: BTreeMap<&str, Vec<(&Name, &Policy)>> = BTreeMap::new();
    let with_pods: BTreeSet<&str> = world.pods.iter().map(|pod| pod.namespace.as_str()).into_set();
    for (name, policy) in world.policies.iter().filter(|(name, _)| with_pods.contains(name.0.as_str())) {
        namespaces.entry(&name.0).or_default().push((name, policy));
    }
    let mut namespaces: Vec<_> = namespaces.into_iter().collect();
    sort_by_key(&mut namespaces, |(_, policies)| policies.iter().map(|(_, policy)| policy.weight()).sum::<usize>());
    let (mut chosen, mut denied) = (Chosen::new(), BTreeMap::new());
    for (namespace, policies) in namespaces {
        let pods = world.pods.iter().filter(|pod| pod.namespace == namespace && pod.link.is_some());
        let too_many = policies.len() > POLICIES_OF_A_NAMESPACE;
        for pod in pods {
            if too_many {
                let why = format!("a node takes {POLICIES_OF_A_NAMESPACE} policies of a namespace");
                denied.extend(policies.first().map(|(name, _)| ((*name).clone(), why)));
                chosen.push((pod, policies.first().map(|(name, _)| (*name, &*DENY)).into_iter().collect()));
                continue;
            }
            let of_pod = policies.iter().filter(|(_, policy)| policy.pod_selector.selects(&pod.labels));
            let of_pod: Vec<_> = of_pod.copied().collect();
            for (name, policy) in &of_pod {
                denied.extend(policy.unreadable.clone().map(|why| ((*name).clone(), why)));
            }
            if !of_pod.is_empty() {
                chosen.push((pod, of_pod));
            }
        }
    }
    (chosen, denied)
}

static DENY: LazyLock<Policy> = LazyLock::new(|| Policy::deny(Default::default(), String::new()));
