//! Volumes of CSI drivers of a pod that is prepared or taken down: the helper mounts them before all else, and unmounts them
//! when nothing of the pod runs. A driver that hangs or is away holds the pods with its volumes, and no others.

use k8s_openapi::api::core::v1::Pod;

use super::super::Node;
use super::connecting::Connecting;
use crate::launch::error::SandboxError;
use crate::volume::{self, VolumeError, csi_kept};

impl Node {
    /// Returns true if the pod waits for volumes; [`Answer::Volumes`](super::connecting::Answer::Volumes) ends that.
    pub(super) fn mount_volumes(&mut self, uid: &str, pod: &Pod) -> Result<bool, SandboxError> {
        if !self.cx.config.plugins.csi {
            // The folders are empty after a reboot, and what a container writes there would be lost.
            csi_kept::lose_paths(&self.cx.paths, uid)?;
            return Ok(false);
        }
        let volumes = self.launch.sandboxes.csi_volumes(pod, &self.cx.objects())?;
        if volumes.is_empty() {
            return Ok(false);
        }
        self.plugins.volumes.kept.note(&self.cx.paths, uid, &volumes)?;
        // A CSIDriver may have come since, which asks for tokens.
        self.tokens.want(&self.cx, uid, pod);
        // The Node says that it uses a volume while that is attached, as a kubelet does.
        self.cx.look_now();
        self.plugins.volumes.mount(uid, &volumes, self.cx.mono());
        self.connecting.insert(uid.to_owned(), Connecting::Mounting);
        Ok(true)
    }

    /// Returns true if the pod waits until volumes are unmounted.
    pub(super) fn unmount_volumes(&mut self, uid: &str) -> Result<bool, VolumeError> {
        if !self.plugins.volumes.kept.has(uid) {
            return Ok(false);
        }
        // Binds of folders in a volume would keep its file system in use.
        volume::teardown(&self.cx.paths, uid)?;
        self.plugins.volumes.unmount(uid, self.cx.mono());
        self.connecting.insert(uid.to_owned(), Connecting::Unmounting);
        Ok(true)
    }
}
