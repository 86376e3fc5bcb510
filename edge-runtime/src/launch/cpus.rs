//! CPUs that containers have for themselves, with `resources.cpu-manager: static`: the board's, and which container has
//! which. Decisions are in [`crate::pod::cpus`]; this keeps their file. Otherwise it is empty, and has no file.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use super::base::Base;
use crate::config::resources::CpuManager;
use crate::pod::cpus::{self, Assignment, CpuSet, Given, Shortage, Topology, state};
use crate::pod::refusal::Refusal;
use crate::pod::spec::{pod_ref, uid};
use crate::sys::files;

/// Where the kernel shows CPUs.
pub const SYS: &str = "/sys/devices/system/cpu";
/// Maximum size of the file, in bytes.
const FILE_LIMIT: u64 = 1 << 20;

/// A pod that keeps the CPUs that it has, and whether it gets those that it lacks.
pub type Holder<'a> = (Cow<'a, Pod>, bool);

/// Assigned CPUs; nothing without the static policy.
#[derive(Debug, Default)]
pub struct Cpus(Option<Box<Static>>);

#[derive(Debug)]
struct Static {
    board: Board,
    file: PathBuf,
    /// CPUs to reserve: these, or this many.
    reserve: (Option<CpuSet>, usize),
    topology: Topology,
    reserved: CpuSet,
    held: Vec<Assignment>,
    /// The file is older than `held`.
    unsaved: bool,
    /// Containers run that do not know of `held` yet.
    changed: bool,
}

impl Cpus {
    /// Empty unless the configuration wants the static policy.
    ///
    /// # Errors
    /// The kernel cannot do it. The text says what is missing.
    pub(super) fn open(base: &Base, sys: &Path) -> Result<Self, String> {
        if base.config.resources.cpu_manager != CpuManager::Static {
            return Ok(Self::default());
        }
        if !base.has_exclusive_cpus() {
            return Err("the kernel has no cpuset controller, or its cgroup file system is not mounted".to_owned());
        }
        let board = Board { sys: sys.to_owned(), within: base.cgroups.files_of_cpus() };
        Self::with(board, base.paths.cpus(), base.config.reserved_cpus, *base.config.reserved.cpu_millis)
    }

    fn with(board: Board, file: PathBuf, given: Option<CpuSet>, millis: u64) -> Result<Self, String> {
        let none = || format!("{} does not show the CPUs, or the node's cgroup has none of them", board.sys.display());
        let topology = board.topology().ok_or_else(none)?;
        let reserve = (given, usize::try_from(millis.div_ceil(1000)).unwrap_or(usize::MAX));
        let reserved = topology.reserved(reserve.0.as_ref(), reserve.1);
        let held = Vec::new();
        let own = Static { board, file, reserve, topology, reserved, held, unsaved: false, changed: false };
        Ok(Self(Some(Box::new(own))))
    }

    /// What to say about reserved CPUs of the configuration that are not there.
    pub(super) fn reserve_warning(&self) -> Option<String> {
        let own = self.0.as_deref()?;
        let missing = own.reserve.0?.without(&own.topology.online());
        let reserved = own.reserved;
        (!missing.is_empty()).then(|| format!("reserved.cpus: {missing} cannot be used here; {reserved} is reserved"))
    }

    /// The CPUs of a folder like [`SYS`], which also gets the file; one is reserved.
    #[cfg(test)]
    pub(crate) fn for_tests(board: &Path) -> Self {
        let file = board.join("cpu_manager_state");
        Self::with(Board { sys: board.to_owned(), within: Vec::new() }, file, None, 1000).unwrap()
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Restores the assignments of an earlier start. `complete`: these are all pods; otherwise their assignments
    /// stay. Returns what to report: assignments that cannot stay, and pods for which there are too few CPUs, which go
    /// on in the shared pool.
    pub fn restore(&mut self, pods: &[Holder<'_>], complete: bool) -> Vec<String> {
        let Some(own) = self.0.as_deref_mut() else { return Vec::new() };
        let mut told = Vec::new();
        match own.stored() {
            Ok(Some(held)) => own.held = held,
            Ok(None) => own.unsaved = true,
            Err(why) => told.push(own.set_aside(&why)),
        }
        own.changed = true;
        told.extend(own.settle(pods, complete));
        told
    }

    /// Compares with the CPUs that are online now, and frees those of pods that are gone. Pods whose CPUs are all there keep
    /// them. Arguments and result as of [`Cpus::restore`].
    pub fn look(&mut self, pods: &[Holder<'_>], complete: bool) -> Vec<String> {
        let Some(own) = self.0.as_deref_mut() else { return Vec::new() };
        let before = own.topology.online();
        let changed = own.board.usable().filter(|usable| *usable != before);
        let Some(topology) = changed.and_then(|_| own.board.topology()) else {
            own.settle(pods, complete);
            return Vec::new();
        };
        let now = topology.online();
        own.topology = topology;
        own.reserved = own.topology.reserved(own.reserve.0.as_ref(), own.reserve.1);
        (own.unsaved, own.changed) = (true, true);
        let lost = own.give_up_lost();
        let why = format!("the CPUs {now} are online, and before {before} were");
        if lost.is_empty() {
            log::info!("{why}");
        }
        let uids = || lost.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let anew = || format!("exclusive CPUs of these pods are assigned anew, because {why}: {}", uids());
        let mut told: Vec<String> = (!lost.is_empty()).then(anew).into_iter().collect();
        told.extend(own.settle(pods, complete));
        told
    }

    /// Why the pod cannot have the CPUs that it wants. `keeps`: whether a pod that holds some keeps them.
    pub fn refusal(&self, pod: &Pod, keeps: impl Fn(&str) -> bool) -> Option<Refusal> {
        let own = self.0.as_deref()?;
        if !cpus::wants_any(pod) {
            return None;
        }
        let held: Vec<Assignment> = own.held.iter().filter(|one| keeps(&one.uid)).cloned().collect();
        let done = cpus::assign(&own.topology, &own.reserved, &held, pod);
        done.err().map(|shortage| shortage.refusal())
    }

    /// Assigns what the pod wants; it is on the disk when this returns.
    pub fn take(&mut self, pod: &Pod) {
        let Some(own) = self.0.as_deref_mut() else { return };
        if let Err(shortage) = own.assign(pod) {
            log::error!("pod {} shares its CPUs: {shortage}", pod_ref(pod));
        }
        own.save();
    }

    /// The pod has ended.
    pub fn free(&mut self, uid: &str) {
        let Some(own) = self.0.as_deref_mut() else { return };
        own.retain(|one| one.uid != uid);
        own.save();
    }

    /// Where a container may run; `None`: everywhere.
    pub fn of(&self, uid: &str, container: &str) -> Option<Given> {
        let own = self.0.as_deref()?;
        Some(cpus::given(&own.held, &cpus::shared(&own.topology.online(), &own.held), uid, container))
    }

    /// CPUs that containers may have for themselves; `None` without the static policy.
    pub fn allocatable(&self) -> Option<CpuSet> {
        self.0.as_deref().map(|own| own.topology.online().without(&own.reserved))
    }

    /// A container has started, whose CPUs may have been given away since it was prepared.
    pub fn started(&mut self) {
        if let Some(own) = self.0.as_deref_mut() {
            own.changed = true;
        }
    }

    /// Whether containers may run elsewhere than they should, since the last call.
    pub fn take_changed(&mut self) -> bool {
        self.0.as_deref_mut().is_some_and(|own| std::mem::take(&mut own.changed))
    }
}

impl Static {
    /// The assignments in the file; `None` without a file.
    fn stored(&self) -> Result<Option<Vec<Assignment>>, String> {
        let mut text = Vec::new();
        let file = match File::open(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| error.to_string())?,
        };
        // More than that is not JSON: it is cut off.
        file.take(FILE_LIMIT).read_to_end(&mut text).map_err(|error| error.to_string())?;
        let (shared, held) = state::parse(&text)?;
        state::check(&shared, &held, &self.topology.online(), &self.reserved)?;
        Ok(Some(held))
    }

    fn set_aside(&mut self, why: &str) -> String {
        let aside = self.file.with_extension("old");
        if let Err(error) = files::unless_missing(std::fs::rename(&self.file, &aside)) {
            log::warn!("{}: {error}", aside.display());
        }
        self.held.clear();
        (self.unsaved, self.changed) = (true, true);
        format!("exclusive CPUs are assigned anew, because of {}: {why}", self.file.display())
    }

    /// Frees all CPUs of pods that have some that are offline or reserved now. Returns their uids.
    fn give_up_lost(&mut self) -> BTreeSet<String> {
        let room = self.topology.online().without(&self.reserved);
        let lost = self.held.iter().filter(|one| !one.cpus.is_subset(&room));
        let lost: BTreeSet<String> = lost.map(|one| one.uid.clone()).collect();
        self.retain(|one| !lost.contains(&one.uid));
        lost
    }

    /// Frees what belongs to no pod, and assigns what pods lack.
    fn settle(&mut self, pods: &[Holder<'_>], complete: bool) -> Vec<String> {
        self.retain(|one| !complete || pods.iter().any(|(pod, _)| uid(pod) == one.uid));
        let mut told = Vec::new();
        for (pod, _) in pods.iter().filter(|(_, wants)| *wants) {
            if let Err(shortage) = self.assign(pod) {
                told.push(format!("pod {} shares its CPUs: {shortage}", pod_ref(pod)));
            }
        }
        self.save();
        told
    }

    fn assign(&mut self, pod: &Pod) -> Result<(), Shortage> {
        for one in cpus::assign(&self.topology, &self.reserved, &self.held, pod)? {
            log::info!("container {} of pod {} has the CPUs {} for itself", one.container, one.uid, one.cpus);
            cpus::add(&mut self.held, one);
            (self.unsaved, self.changed) = (true, true);
        }
        Ok(())
    }

    fn retain(&mut self, keep: impl Fn(&Assignment) -> bool) {
        let before = self.held.len();
        self.held.retain(keep);
        if self.held.len() != before {
            (self.unsaved, self.changed) = (true, true);
        }
    }

    /// On a disk that takes nothing the assignments hold until the next start, and are written later.
    fn save(&mut self) {
        if !self.unsaved {
            return;
        }
        let text = state::render(&cpus::shared(&self.topology.online(), &self.held), &self.held);
        match files::replace(&self.file, text.as_bytes(), true) {
            Ok(()) => self.unsaved = false,
            Err(error) => log::error!("{}: {error}", self.file.display()),
        }
    }
}

fn list(file: &Path) -> Option<CpuSet> {
    CpuSet::parse(&std::fs::read_to_string(file).ok()?)
}

/// Where the kernel shows the CPUs of this machine.
#[derive(Debug)]
struct Board {
    /// A folder like [`SYS`].
    sys: PathBuf,
    /// Files with the CPUs of the node's cgroup. The first that has any counts; without one, all can be used.
    within: Vec<PathBuf>,
}

impl Board {
    /// CPUs that are online and in the node's cgroup.
    fn usable(&self) -> Option<CpuSet> {
        let online = list(&self.sys.join("online"))?;
        let within = self.within.iter().find_map(|file| list(file).filter(|cpus| !cpus.is_empty()));
        Some(within.map_or(online, |within| within.intersection(&online)))
    }

    /// The cores. A CPU whose core is not shown is a core of its own.
    fn topology(&self) -> Option<Topology> {
        let usable = self.usable().filter(|usable| !usable.is_empty())?;
        let (mut cores, mut seen) = (Vec::new(), CpuSet::default());
        for cpu in usable.iter() {
            if seen.contains(cpu) {
                continue;
            }
            let siblings = list(&self.sys.join(format!("cpu{cpu}/topology/thread_siblings_list")));
            let siblings = siblings.map(|all| all.intersection(&usable).without(&seen));
            let core = siblings.filter(|core| core.contains(cpu)).unwrap_or_else(|| CpuSet::of(cpu));
            seen = seen.union(&core);
            cores.push(core);
        }
        Some(Topology::new(cores))
    }
}

#[cfg(test)]
mod tests;
