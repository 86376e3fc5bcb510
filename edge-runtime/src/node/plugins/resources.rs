//! What pods have of the node, for clients of podresources: devices of plugins, and CPUs for themselves (K8s
//! pkg/kubelet/apis/podresources).

use sampan_plugins_control::{Asked, Assigned, ContainerResources, PodResources, Resources};

use crate::launch::cpus::Cpus;
use crate::launch::devices::kept::Kept;
use crate::node::pods::{Entry, Pods};
use crate::pod::cpus::CpuSet;
use crate::pod::record::ContainerKind;
use crate::pod::spec::with_kinds;

/// Answers a question. Pods are those that have been admitted and have not ended.
pub(super) fn of(what: &Asked, pods: &Pods, kept: &Kept, cpus: &Cpus) -> Resources {
    let is_active = |entry: &Entry| entry.record.admitted && entry.record.terminal.is_none();
    match what {
        Asked::List {} => {
            let mut all = Vec::new();
            for (_, entry) in pods.iter() {
                if is_active(entry) {
                    all.push(of_pod(entry, kept, cpus));
                }
            }
            Resources::Pods(all)
        }
        Asked::Get { namespace, name } => match pods.by_name(namespace, name).filter(|entry| is_active(entry)) {
            Some(entry) => Resources::Pods(vec![of_pod(entry, kept, cpus)]),
            None => Resources::Refused(format!("pod {name} in namespace {namespace} not found")),
        },
        Asked::Allocatable {} => Resources::Cpus(numbers(cpus.allocatable())),
    }
}

/// Init containers are left out, as in the kubelet: they have ended.
fn of_pod(entry: &Entry, kept: &Kept, cpus: &Cpus) -> PodResources {
    let record = &entry.record;
    let mut containers = Vec::new();
    for (container, kind) in entry.pod.spec.iter().flat_map(with_kinds) {
        if kind == ContainerKind::Init {
            continue;
        }
        let mut devices = Vec::new();
        for has in kept.of(&record.uid, &container.name) {
            if !has.ids.is_empty() {
                devices.push(Assigned { resource: has.resource.clone(), ids: has.ids.clone() });
            }
        }
        let given = cpus.of(&record.uid, &container.name).filter(|given| given.exclusive);
        let cpus = numbers(given.map(|given| given.cpus));
        containers.push(ContainerResources { name: container.name.clone(), devices, cpus });
    }
    PodResources { namespace: record.namespace.clone(), name: record.name.clone(), containers }
}

fn numbers(cpus: Option<CpuSet>) -> Vec<i64> {
    cpus.into_iter().flat_map(|cpus| cpus.iter()).map(i64::from).collect()
}
