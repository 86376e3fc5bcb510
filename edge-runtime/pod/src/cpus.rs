//! CPUs that containers have for themselves: the kubelet's static policy (K8s pkg/kubelet/cm/cpumanager,
//! `policy_static.go` and `cpu_assignment.go`), without NUMA nodes and policy options. Pure.
//!
//! A container of a Guaranteed pod that requests whole CPUs gets that many for itself. All other containers share the
//! rest, the reserved CPUs included.

mod set;
pub mod state;

use std::fmt;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};

pub use self::set::CpuSet;
use super::qos::{QosClass, qos_class};
use super::record::{ContainerKind, PodRecord, Resources};
use super::refusal::Refusal;
use super::requests::request;
use super::spec::{containers_of, uid, with_kinds};

/// The CPUs of each core that are online, by the lowest id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology(Vec<CpuSet>);

/// CPUs of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub uid: String,
    pub container: String,
    pub cpus: CpuSet,
}

/// CPUs on which a container may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub cpus: CpuSet,
    /// No other container may run there.
    pub exclusive: bool,
}

/// Fewer CPUs are free than a container wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub requested: usize,
    pub available: usize,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, available } = self;
        write!(f, "not enough cpus available to satisfy request: requested={requested}, available={available}")
    }
}

impl Shortage {
    /// The words of the kubelet (K8s pkg/kubelet/cm/admission, `unexpectedAdmissionError`).
    pub fn refusal(&self) -> Refusal {
        let message = format!("Allocate failed due to {self}, which is unexpected");
        Refusal { reason: "UnexpectedAdmissionError".to_owned(), message }
    }
}

impl Topology {
    /// `cores`: by the lowest id, without CPUs that are offline, and each CPU once.
    pub fn new(cores: Vec<CpuSet>) -> Self {
        Self(cores)
    }

    pub fn online(&self) -> CpuSet {
        self.0.iter().fold(CpuSet::default(), |all, core| all.union(core))
    }

    /// Chooses `wanted` of the `free` CPUs: whole cores first, then those of the cores with the fewest free ones, each
    /// time the lowest ids (K8s cpu_assignment.go, `takeByTopologyNUMAPacked`). `None` if too few are free.
    pub fn take(&self, free: &CpuSet, wanted: usize) -> Option<CpuSet> {
        let mut taken = CpuSet::default();
        for core in self.0.iter().filter(|core| core.is_subset(free)) {
            if taken.len() + core.len() <= wanted {
                taken = taken.union(core);
            }
        }
        while taken.len() < wanted {
            let rest = free.without(&taken);
            let cores = self.0.iter().map(|core| core.intersection(&rest)).filter(|core| !core.is_empty());
            let cpu = cores.min_by_key(CpuSet::len)?.iter().next()?;
            taken = taken.union(&CpuSet::of(cpu));
        }
        Some(taken)
    }

    /// CPUs that no container has for itself: those `given` that are online, else `count`, at least one.
    pub fn reserved(&self, given: Option<&CpuSet>, count: usize) -> CpuSet {
        let online = self.online();
        let own = given.map(|given| given.intersection(&online)).filter(|own| !own.is_empty());
        own.unwrap_or_else(|| self.take(&online, count.max(1)).unwrap_or(online))
    }
}

/// Adds an assignment at its place.
pub fn add(held: &mut Vec<Assignment>, new: Assignment) {
    let behind = |one: &Assignment| (&one.uid, &one.container) > (&new.uid, &new.container);
    let at = held.iter().position(behind).unwrap_or(held.len());
    held.insert(at, new);
}

/// CPUs that no container has for itself.
pub fn shared(online: &CpuSet, held: &[Assignment]) -> CpuSet {
    held.iter().fold(*online, |rest, one| rest.without(&one.cpus))
}

/// The CPUs of a container. `held` and `shared` are of the node.
pub fn given(held: &[Assignment], shared: &CpuSet, uid: &str, container: &str) -> Given {
    let own = held.iter().find(|one| one.uid == uid && one.container == container);
    own.map_or(Given { cpus: *shared, exclusive: false }, |one| Given { cpus: one.cpus, exclusive: true })
}

/// Whether a container of the pod wants CPUs for itself.
pub fn wants_any(pod: &Pod) -> bool {
    wanted(pod).next().is_some()
}

/// The containers that want CPUs for themselves, and how many.
fn wanted(pod: &Pod) -> impl Iterator<Item = (&str, ContainerKind, usize)> {
    // K8s policy_static.go, `Allocate`: pods with resources of their own are left out.
    let whole_pod = |resources: &ResourceRequirements| resources.requests.is_some() || resources.limits.is_some();
    let spec = pod.spec.as_ref().filter(|spec| !spec.resources.as_ref().is_some_and(whole_pod));
    let spec = spec.filter(|_| qos_class(pod) == QosClass::Guaranteed);
    let all = spec.into_iter().flat_map(with_kinds);
    all.filter_map(|(container, kind)| Some((container.name.as_str(), kind, whole_cpus(container)?)))
}

fn whole_cpus(container: &Container) -> Option<usize> {
    let milli = request(container.resources.as_ref(), "cpu").filter(|milli| *milli > 0 && milli % 1000 == 0)?;
    usize::try_from(milli / 1000).ok()
}

/// Assignments that the pod needs and does not hold yet. An init container passes its CPUs on to those after it in the
/// pod, a sidecar does not (K8s policy_static.go, `updateCPUsToReuse`).
///
/// # Errors
/// Too few CPUs are free.
pub fn assign(
    topology: &Topology,
    reserved: &CpuSet,
    held: &[Assignment],
    pod: &Pod,
) -> Result<Vec<Assignment>, Shortage> {
    let mut free = shared(&topology.online(), held).without(reserved);
    let (mut passed_on, mut new) = (CpuSet::default(), Vec::new());
    for (container, kind, requested) in wanted(pod) {
        let had = held.iter().find(|one| one.uid == uid(pod) && one.container == container);
        let cpus = match had {
            Some(one) => one.cpus,
            None => {
                let room = free.union(&passed_on);
                let shortage = Shortage { requested, available: room.len() };
                let cpus = topology.take(&room, requested).ok_or(shortage)?;
                new.push(Assignment { uid: uid(pod).to_owned(), container: container.to_owned(), cpus });
                cpus
            }
        };
        free = free.without(&cpus);
        passed_on = if kind == ContainerKind::Init { passed_on.union(&cpus) } else { passed_on.without(&cpus) };
    }
    Ok(new)
}

/// Why a pod that runs cannot get the CPU that it asks for by now (K8s pkg/kubelet/allocation,
/// `podResizesAdmitHandler`: without the feature gate `InPlacePodVerticalScalingExclusiveCPUs`).
pub fn resize_refusal(pod: &Pod, record: &PodRecord) -> Option<Refusal> {
    let differs = |container: &Container| {
        let has = record.containers.get(&container.name).and_then(|of| of.resources.as_ref());
        has.is_some_and(|has| has.differs(&Resources::of(container), "cpu"))
    };
    (qos_class(pod) == QosClass::Guaranteed && containers_of(pod).any(differs)).then(|| Refusal {
        reason: "Infeasible".to_owned(),
        message: "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"".to_owned(),
    })
}

#[cfg(test)]
mod tests;
