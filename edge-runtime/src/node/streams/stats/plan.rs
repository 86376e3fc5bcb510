//! What to measure: names, cgroups and folders of everything that runs now.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};

use crate::clock::Clock;
use crate::eviction::walk::{LONGEST_IN_SHORTAGE, Question};
use crate::launch::cgroups::{cgroup_of_container, cgroup_of_pod};
use crate::node::context::Context;
use crate::node::ephemeral_storage::question;
use crate::node::pods::Entry;
use crate::paths::Paths;
use crate::pod::record::ContainerState;
use crate::store::StoreError;
use crate::sys::cgroup::{Cgroups, UsageReader};

/// The machine's own cgroup.
pub(in crate::node) const ROOT: &str = "/";

pub(in crate::node) struct Plan {
    pub(in crate::node) reader: UsageReader,
    pub(in crate::node) paths: Paths,
    pub(in crate::node) node: String,
    pub(in crate::node) booted: Timestamp,
    /// File system of state, images and writable layers.
    pub(in crate::node) state: PathBuf,
    pub(in crate::node) image_bytes: u64,
    pub(in crate::node) pods: Vec<PodPlan>,
}

pub(in crate::node) struct PodPlan {
    pub(in crate::node) namespace: String,
    pub(in crate::node) name: String,
    pub(in crate::node) uid: String,
    pub(in crate::node) started: Timestamp,
    pub(in crate::node) cgroup: String,
    pub(in crate::node) host_network: bool,
    pub(in crate::node) containers: Vec<ContainerPlan>,
    /// Volumes that live and die with the pod: name and folder.
    pub(in crate::node) volumes: Vec<(String, PathBuf)>,
    /// Has its disk use measured.
    pub(in crate::node) question: Question,
}

pub(in crate::node) struct ContainerPlan {
    pub(in crate::node) name: String,
    pub(in crate::node) started: Timestamp,
    pub(in crate::node) pid: i32,
    pub(in crate::node) cgroup: String,
}

impl Plan {
    pub(in crate::node) fn cgroups(&self) -> impl Iterator<Item = &str> {
        let pods = self.pods.iter().flat_map(|pod| {
            let containers = pod.containers.iter().map(|container| container.cgroup.as_str());
            std::iter::once(pod.cgroup.as_str()).chain(containers)
        });
        std::iter::once(ROOT).chain(pods)
    }

    pub(in crate::node) fn of(cx: &Context, cgroups: &Cgroups) -> Result<Self, StoreError> {
        let up = SignedDuration::try_from(Clock::mono().since(crate::pod::clock::Mono(0))).unwrap_or_default();
        let pods =
            cx.pods.iter().map(|(_, entry)| pod_plan(cx, cgroups, entry)).filter(|pod| !pod.containers.is_empty());
        Ok(Self {
            reader: cgroups.reader(),
            paths: cx.paths.clone(),
            node: cx.config.node_name.clone(),
            booted: cx.wall().checked_sub(up).unwrap_or_default(),
            state: cx.paths.state(),
            image_bytes: cx.store.images()?.iter().map(|image| image.size).sum(),
            pods: pods.collect(),
        })
    }
}

fn pod_plan(cx: &Context, cgroups: &Cgroups, entry: &Entry) -> PodPlan {
    let record = &entry.record;
    let cgroup = cgroup_of_pod(cgroups, &entry.pod, &record.uid);
    let containers = record.containers.iter().filter_map(|(name, container)| {
        let (id, pid, started) = match &container.state {
            ContainerState::Running { id, pid, started_at, .. } => (id, *pid, *started_at),
            ContainerState::Stopping { id, pid: pid @ 1.., started_at: Some(started_at), .. } => {
                (id, *pid, *started_at)
            }
            _ => return None,
        };
        Some(ContainerPlan {
            name: name.clone(),
            started,
            pid,
            cgroup: cgroup_of_container(cgroups, &entry.pod, &record.uid, id),
        })
    });
    let spec = entry.pod.spec.as_ref();
    let kept = spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten());
    let volumes = kept.filter_map(|volume| {
        let folder = cx.paths.pod(&record.uid);
        let from_objects = volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.projected.is_some()
            || volume.downward_api.is_some();
        let folder = match (volume.empty_dir.is_some(), from_objects) {
            (true, _) => folder.join("volumes").join(&volume.name),
            (_, true) => folder.join("objects").join(&volume.name),
            _ => return None,
        };
        Some((volume.name.clone(), folder))
    });
    PodPlan {
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        uid: record.uid.clone(),
        started: record.started_at,
        host_network: spec.and_then(|spec| spec.host_network).unwrap_or(false),
        containers: containers.collect(),
        volumes: volumes.collect(),
        question: question(cx, entry, LONGEST_IN_SHORTAGE, true),
        cgroup,
    }
}
