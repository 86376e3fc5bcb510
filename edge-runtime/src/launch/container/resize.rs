//! New cgroup values for what runs. Writes control files, or has systemd do it, and decides nothing.

use k8s_openapi::api::core::v1::Pod;

use super::Containers;
use crate::launch::cgroups::{cgroup_of_container, cgroup_of_pod};
use crate::launch::resources::{NO_QUOTA, container_values};
use crate::launch::sandbox::pod_cgroup;
use crate::pod::spec::containers_of;
use crate::sys::cgroup::{CgroupValues, Driver, Pending};

/// A change: done, failed, or on its way to systemd.
type Change = Result<Option<Pending>, String>;

/// The changes of one pod.
#[derive(Debug)]
pub struct Resizing {
    /// Changes in the order of the request.
    containers: Vec<Change>,
    pod: Change,
}

impl Resizing {
    /// Whether there is nothing to wait for.
    pub fn is_settled(&self) -> bool {
        self.containers.iter().chain([&self.pod]).all(|change| !matches!(change, Ok(Some(_))))
    }

    /// One answer for each container. None is resized before the pod is.
    pub async fn settle(self) -> Vec<Result<(), String>> {
        let mut all = Vec::new();
        for change in self.containers {
            all.push(settled(change).await);
        }
        let pod = settled(self.pod).await;
        all.into_iter().map(|one| one.and(pod.clone())).collect()
    }
}

async fn settled(change: Change) -> Result<(), String> {
    match change? {
        Some(pending) => pending.recv().await.map_err(|_| "nobody talks to systemd".to_owned())?,
        None => Ok(()),
    }
}

impl Containers {
    /// Gives the containers (name, id) of a pod, and the pod as a whole, the values of its newest spec.
    pub fn resize(&self, pod: &Pod, uid: &str, containers: &[(String, String)]) -> Resizing {
        let opened = self.open(&cgroup_of_pod(&self.base.cgroups, pod, uid));
        let containers = containers.iter().map(|(name, id)| {
            opened.clone()?;
            self.resize_container(pod, uid, name, id)
        });
        let containers = containers.collect();
        Resizing { containers, pod: pod_cgroup(&self.base, pod).map_err(|error| error.to_string()) }
    }

    /// Removes the CPU quota of a cgroup first. On cgroup v1 a child must never have more than its parent, in any order
    /// of writes.
    fn open(&self, path: &str) -> Result<(), String> {
        if self.base.config.cgroup_driver == Driver::Systemd {
            return Ok(());
        }
        let open = CgroupValues { cpu_quota_us: Some(NO_QUOTA), ..CgroupValues::default() };
        self.base.cgroups.update(path, &open).map(drop).map_err(|error| error.to_string())
    }

    fn resize_container(&self, pod: &Pod, uid: &str, name: &str, id: &str) -> Change {
        let container = containers_of(pod).find(|one| one.name == name).ok_or("it is no longer in the pod's spec")?;
        let path = cgroup_of_container(&self.base.cgroups, pod, uid, id);
        let mut values = container_values(pod, container).map_err(|error| error.to_string())?;
        if self.cpus.of(uid, name).is_some_and(|given| given.exclusive) {
            values.cpu_quota_us = Some(NO_QUOTA);
        }
        // The kernel would kill at once (v2) what only a lower use can make fit.
        if let Some((limit, used)) =
            values.memory_limit_bytes.zip(self.base.cgroups.working_set(&path)).filter(|(limit, used)| limit < used)
        {
            return Err(format!(
                "cannot decrease memory limits: attempting to set container {name:?} memory limit ({limit}) below \
                 current usage ({used})"
            ));
        }
        self.base.cgroups.update(&path, &values).map_err(|error| error.to_string())
    }
}
