//! One look at the counters of everything that runs. Decides nothing.

use std::path::Path;
use std::time::Instant;

use edge_runtime::cli::CliError;
use edge_runtime::intake::{self, Recorded};
use edge_runtime::launch::cgroups::{cgroup_of_container, cgroup_of_pod};
use edge_runtime::paths::Paths;
use edge_runtime::store::Store;
use sampan_pod::record::ContainerState;
use sampan_sys::cgroup::Cgroups;
use sampan_sys::host;

use crate::doctor::host::Host;
use crate::doctor::{degrees, load, meminfo};
use crate::find;

pub(crate) struct Looker {
    store: Store,
    cgroups: Cgroups,
    node: String,
    cpus: u32,
}

/// The counters at one moment.
pub(crate) struct Look {
    pub(crate) at: Instant,
    pub(crate) node: Node,
    pub(crate) pods: Vec<PodLook>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) cpus: u32,
    /// CPU time of all processes.
    pub(crate) cpu_nanos: Option<u64>,
    pub(crate) memory_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) swap_bytes: u64,
    /// Three averages, as `/proc/loadavg` has them.
    pub(crate) load: String,
    pub(crate) degrees: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PodLook {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) cpu_nanos: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) containers: Vec<ContainerLook>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerLook {
    pub(crate) name: String,
    /// Another one after a restart.
    pub(crate) id: String,
    pub(crate) state: &'static str,
    pub(crate) restarts: u32,
    pub(crate) cpu_nanos: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) limit_bytes: Option<u64>,
}

impl Looker {
    /// # Errors
    /// No node has run here, or the cgroup file system is missing.
    pub(crate) fn open(paths: &Paths) -> Result<Self, CliError> {
        let store = find::store(paths)?;
        let config = Host::new(paths)
            .config
            .ok_or_else(|| CliError::Failed("the configuration is wrong: edge-runtime doctor".into()))?;
        Ok(Self {
            store,
            cgroups: Cgroups::detect(config.cgroup_driver, &config.cgroup_parent)?,
            node: config.node_name,
            cpus: host::facts().cpus,
        })
    }

    /// # Errors
    /// The store cannot be read.
    pub(crate) fn look(&self) -> Result<Look, CliError> {
        Ok(self.look_at(&self.recorded()?))
    }

    /// The pods that are here.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn recorded(&self) -> Result<Vec<Recorded>, CliError> {
        Ok(intake::restore(&self.store)?.recorded)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn look_at(&self, recorded: &[Recorded]) -> Look {
        let reader = self.cgroups.reader();
        let mut pods = Vec::new();
        for Recorded { pod, record, .. } in recorded {
            let of_pod = reader.usage(&cgroup_of_pod(&self.cgroups, pod, &record.uid));
            let containers = record.containers.iter().map(|(name, container)| {
                let (state, id) = state(&container.state);
                let usage = match id {
                    Some(id) => reader.usage(&cgroup_of_container(&self.cgroups, pod, &record.uid, id)),
                    None => Default::default(),
                };
                ContainerLook {
                    name: name.clone(),
                    id: id.unwrap_or_default().to_owned(),
                    state,
                    restarts: container.attempt,
                    cpu_nanos: usage.cpu_nanos,
                    memory_bytes: usage.working_set_bytes,
                    limit_bytes: usage.memory_limit_bytes,
                }
            });
            pods.push(PodLook {
                namespace: record.namespace.clone(),
                name: record.name.clone(),
                uid: record.uid.clone(),
                cpu_nanos: of_pod.cpu_nanos,
                memory_bytes: of_pod.working_set_bytes,
                containers: containers.collect(),
            });
        }
        let memory = host::memory_use();
        let node = Node {
            name: self.node.clone(),
            cpus: self.cpus,
            cpu_nanos: reader.usage("/").cpu_nanos,
            memory_bytes: memory.total_bytes,
            used_bytes: memory.working_set_bytes,
            swap_bytes: meminfo("SwapTotal").saturating_sub(meminfo("SwapFree")),
            load: load(),
            degrees: degrees(Path::new("/sys")),
        };
        Look { at: Instant::now(), node, pods }
    }
}

fn state(state: &ContainerState) -> (&'static str, Option<&str>) {
    match state {
        ContainerState::Running { id, .. } => ("Running", Some(id)),
        ContainerState::Stopping { id, .. } => ("Stopping", Some(id)),
        ContainerState::Terminated(_) => ("Ended", None),
        ContainerState::Pulling { .. } => ("Pulling", None),
        ContainerState::Starting { .. } => ("Starting", None),
        ContainerState::Waiting { .. } | ContainerState::ImageReady { .. } => ("Waiting", None),
    }
}
