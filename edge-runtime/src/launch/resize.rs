//! New cgroup values for what runs. Writes control files and decides nothing.

use k8s_openapi::api::core::v1::Pod;

use super::all_containers;
use super::launcher::Launcher;
use super::resources::container_values;
use super::sandbox::class;
use crate::sys::cgroup::CgroupValues;

/// No limit on the processor.
const NO_QUOTA: i64 = -1;

impl Launcher {
    /// Gives the containers (name, id) of a pod, and the pod as a whole, the values of its newest spec. One answer for
    /// each container.
    pub fn resize(&self, pod: &Pod, uid: &str, containers: &[(String, String)]) -> Vec<Result<(), String>> {
        let path = self.cgroups.pod_path(class(pod), uid);
        // On cgroup v1 no child may have more than its parent, whichever of them is written first.
        let open = CgroupValues { cpu_quota_us: Some(NO_QUOTA), ..CgroupValues::default() };
        let opened = self.cgroups.update(&path, &open).map_err(|error| error.to_string());
        let done = containers.iter().map(|(name, id)| {
            opened.clone()?;
            self.resize_container(pod, &path, name, id)
        });
        let done: Vec<_> = done.collect();
        match self.pod_cgroup(pod, uid) {
            Ok(()) => done,
            Err(error) => done.into_iter().map(|one| one.and(Err(error.message.clone()))).collect(),
        }
    }

    fn resize_container(&self, pod: &Pod, pod_path: &str, name: &str, id: &str) -> Result<(), String> {
        let container = all_containers(pod).find(|one| one.name == name).ok_or("it is no longer in the pod's spec")?;
        let path = format!("{pod_path}/{id}");
        let values = container_values(pod, container).map_err(|error| error.to_string())?;
        let limit = values.memory_limit.and_then(|bytes| u64::try_from(bytes).ok());
        // The kernel would kill at once (v2) what only a lower use can make fit.
        if let Some((limit, used)) = limit.zip(self.cgroups.working_set(&path)).filter(|(limit, used)| limit < used) {
            return Err(format!(
                "cannot decrease memory limits: attempting to set container {name:?} memory limit ({limit}) below \
                 current usage ({used})"
            ));
        }
        let values = CgroupValues {
            cpu_shares: Some(values.cpu_shares),
            cpu_quota_us: values.cpu_quota_us,
            memory_limit_bytes: limit,
            pids_limit: None,
        };
        self.cgroups.update(&path, &values).map_err(|error| error.to_string())
    }
}
