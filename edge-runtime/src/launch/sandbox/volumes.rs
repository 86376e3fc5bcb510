//! Volumes of a pod, and the facts in them.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use sampan_plugins_control::CsiMount;

use super::{Prepared, Sandboxes};
use crate::launch::base::Objects;
use crate::launch::error::SandboxError;
use crate::launch::look::Look;
use crate::launch::looking::Trouble;
use crate::launch::resources;
use crate::net::namespaces::PodNamespaces;
use crate::pod::spec::{host_network, uid};
use crate::sys::files::private_dir;
use crate::sys::host;
use crate::volume::csi::CsiVolume;
use crate::volume::{self, DownwardFacts, VolumeContext, VolumeError, csi_pod};

impl Sandboxes {
    /// Returns the work of a helper before [`Sandboxes::prepare`].
    ///
    /// # Errors
    /// The pod's folder cannot be made.
    pub fn volume_looks(&self, pod: &Pod, objects: Objects<'_>) -> Result<Vec<Look>, SandboxError> {
        let facts = self.downward(pod, &[]);
        let looks = volume::look::looks(&self.volume_context(pod, objects, &facts));
        if !looks.is_empty() {
            // Completed work is marked there.
            private_dir(&self.base.paths.pod(uid(pod)))?;
        }
        Ok(looks.into_iter().map(Look::Volume).collect())
    }

    /// Returns the pod's volumes of CSI drivers.
    ///
    /// # Errors
    /// A claim is not bound yet, or is of another pod.
    pub fn csi_volumes(&self, pod: &Pod, objects: Objects<'_>) -> Result<Vec<CsiVolume>, VolumeError> {
        csi_pod::of_pod(&self.volume_context(pod, objects, &self.downward(pod, &[])))
    }

    /// Returns the order to mount one of them.
    ///
    /// # Errors
    /// Same as [`csi_pod::order`].
    pub fn csi_order(&self, pod: &Pod, folder: &str, objects: Objects<'_>) -> Result<CsiMount, VolumeError> {
        csi_pod::order(&self.volume_context(pod, objects, &self.downward(pod, &[])), folder)
    }

    /// Converts a helper's failure at a volume into the pod's error. Slow work continues in another helper while the
    /// pod is retried.
    pub fn look_failed(&mut self, trouble: Trouble) -> SandboxError {
        match trouble {
            Trouble::Failed(message) => SandboxError::Mount(message),
            Trouble::Own(owning) => match self.helpers.own(&owning, &self.base.paths) {
                Ok(()) => VolumeError::Owning(Box::new(owning)).into(),
                Err(error) => error.into(),
            },
        }
    }

    pub(super) fn set_up_volumes(
        &mut self,
        pod: &Pod,
        ips: &[IpAddr],
        objects: Objects<'_>,
        namespaces: PodNamespaces,
    ) -> Result<(), SandboxError> {
        let facts = self.downward(pod, ips);
        let volumes = volume::setup(&self.volume_context(pod, objects, &facts))?;
        self.prepared.insert(uid(pod).to_owned(), Prepared { volumes, namespaces });
        Ok(())
    }

    pub(super) fn downward(&self, pod: &Pod, pod_ips: &[IpAddr]) -> DownwardFacts {
        // A pod on the node's network has no address of its own.
        let pod_ips = if host_network(pod) { &self.host_ips } else { pod_ips };
        let text = |ips: &[IpAddr]| ips.iter().map(IpAddr::to_string).collect();
        DownwardFacts {
            node_name: self.base.config.node_name.clone(),
            host_ips: text(&self.host_ips),
            pod_ips: text(pod_ips),
            allocatable_cpu_milli: self.base.config.allocatable_cpu_milli(self.host.cpus),
            allocatable_memory_bytes: self.base.config.allocatable_memory(self.host.memory_bytes),
            allocatable_storage_bytes: host::disk_space(&self.base.paths.state())
                .map_or(0, |space| self.base.config.allocatable_storage(space.total_bytes)),
            pod_memory_limit: resources::pod_memory_limit(pod),
        }
    }

    /// Brings volumes made from objects up to date. Returns the names of those that changed.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn refresh_volumes(&self, pod: &Pod, ips: &[IpAddr], objects: Objects<'_>) -> Result<Vec<String>, VolumeError> {
        let facts = self.downward(pod, ips);
        volume::update(&self.volume_context(pod, objects, &facts))
    }

    fn volume_context<'a>(&'a self, pod: &'a Pod, objects: Objects<'a>, facts: &'a DownwardFacts) -> VolumeContext<'a> {
        let uses_local_api = self.base.config.local_api.is_used_by(pod);
        VolumeContext { paths: &self.base.paths, pod, objects, facts, uses_local_api }
    }
}
