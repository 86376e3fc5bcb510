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

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use serde_json::{Value, json};

    use super::*;
    use crate::pod::clock::Mono;
    use crate::pod::record::{ContainerKind, ContainerRecord, PodRecord, PodSource, SignalState, StopReason};

    fn stopping(pid: i32, started_at: Option<Timestamp>) -> ContainerState {
        ContainerState::Stopping {
            id: "i".to_owned(),
            pid,
            started_at,
            because: StopReason::Deleted,
            kill_at: Mono(0),
            spare_until: None,
            signal: SignalState::Stop,
        }
    }

    fn add(cx: &mut Context, uid: &str, spec: &Value, containers: &[(&str, ContainerState)]) {
        let pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let mut record = PodRecord::new(uid, "ns", uid, PodSource::Api, &cx.clock.now());
        for (name, state) in containers {
            let container = ContainerRecord { state: state.clone(), ..ContainerRecord::new(ContainerKind::App) };
            record.containers.insert((*name).to_owned(), container);
        }
        cx.pods.insert(Entry::new(Rc::new(pod), record));
    }

    #[test]
    fn container_without_a_process_is_not_measured() {
        let (_folder, mut cx) = Context::in_a_folder();
        let started = Timestamp::UNIX_EPOCH;
        let running = ContainerState::Running { id: "i".to_owned(), pid: 7, started_at: started, since: Mono(0) };
        let containers = [
            ("ending", stopping(8, Some(started))),
            ("running", running),
            ("starting", stopping(0, Some(started))),
            ("unknown", stopping(9, None)),
            ("waiting", ContainerState::waiting()),
        ];
        let spec = json!({"containers": []});
        add(&mut cx, "a", &spec, &containers);
        add(&mut cx, "b", &spec, &[("waiting", ContainerState::waiting())]);
        let plan = Plan::of(&cx, &Cgroups::absent()).unwrap();
        let [pod] = plan.pods.as_slice() else { panic!("{} pods", plan.pods.len()) };
        let found: Vec<(&str, i32)> = pod.containers.iter().map(|one| (one.name.as_str(), one.pid)).collect();
        assert_eq!((pod.uid.as_str(), found), ("a", vec![("ending", 8), ("running", 7)]));
        let cgroups: Vec<&str> = plan.cgroups().collect();
        assert_eq!((cgroups.len(), cgroups.first()), (4, Some(&ROOT)), "the machine, the pod, and both containers");
    }

    #[test]
    fn volumes_that_end_with_their_pod_are_measured() {
        let (_folder, mut cx) = Context::in_a_folder();
        let volumes = json!([
            {"name": "empty", "emptyDir": {}},
            {"name": "map", "configMap": {"name": "m"}},
            {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "token", "projected": {}},
            {"name": "labels", "downwardAPI": {}},
            {"name": "host", "hostPath": {"path": "/"}},
        ]);
        let running =
            ContainerState::Running { id: "i".to_owned(), pid: 7, started_at: Timestamp::UNIX_EPOCH, since: Mono(0) };
        add(&mut cx, "u", &json!({"containers": [], "volumes": volumes}), &[("c", running)]);
        let plan = Plan::of(&cx, &Cgroups::absent()).unwrap();
        let folder = cx.paths.pod("u");
        let of = |kind: &str, name: &str| (name.to_owned(), folder.join(kind).join(name));
        let objects = ["map", "secret", "token", "labels"].map(|name| of("objects", name));
        let wanted: Vec<(String, PathBuf)> = std::iter::once(of("volumes", "empty")).chain(objects).collect();
        assert_eq!(plan.pods.first().map(|pod| &pod.volumes), Some(&wanted));
    }
}
