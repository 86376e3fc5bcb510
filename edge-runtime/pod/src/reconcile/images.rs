//! The images a container needs before it can start: those of the image volumes it mounts, then its own.
//!
//! K8s pkg/kubelet/kuberuntime/kuberuntime_manager.go, `getImageVolumes`. As the API documents, such a volume is
//! resolved once: a restart of the container, of the daemon or of the machine mounts the same content again.

use k8s_openapi::api::core::v1::{Container, ImageVolumeSource};

use super::super::record::{ContainerState, VolumeImage};
use super::super::step::{EventDraft, PullPolicy, Step};
use super::Turn;

impl<'a> Turn<'a> {
    /// Requests one missing image, or starts the container.
    pub(super) fn launch(&mut self, container: &Container) {
        while let Some((volume, source)) = self.lacking(container) {
            let reference = source.reference.clone().unwrap_or_default();
            let policy = pull_policy(&reference, source.pull_policy.as_deref());
            let present = (self.world.image)(&reference).filter(|_| policy != PullPolicy::Always);
            let Some(image_id) = present else {
                let image = VolumeImage { volume: volume.to_owned(), reference };
                return self.ensure_image(container, policy, Some(image));
            };
            self.record.image_volumes.insert(volume.to_owned(), image_id);
            let text = already_present(&reference);
            self.steps.push(Step::Event(EventDraft::pod(false, "Pulled", text)));
        }
        let reference = container.image.clone().unwrap_or_default();
        let policy = pull_policy(&reference, container.image_pull_policy.as_deref());
        let Some(c) = self.record.containers.get_mut(&container.name) else { return };
        if c.image != reference {
            c.image.clone_from(&reference);
            c.pull_backoff = None;
        }
        if policy != PullPolicy::Always
            && let Some(image_id) = (self.world.image)(&reference)
        {
            c.image_id = image_id;
            self.container_event(&container.name, false, "Pulled", already_present(&reference));
            return self.start(container);
        }
        self.ensure_image(container, policy, None);
    }

    pub(super) fn ensure_image(&mut self, container: &Container, policy: PullPolicy, volume: Option<VolumeImage>) {
        let Some(c) = self.record.containers.get_mut(&container.name) else { return };
        let (reason, message) = c.state.shown();
        let (reason, message) = (reason.to_owned(), message.to_owned());
        let for_volume = volume.is_some();
        let own = || container.image.clone().unwrap_or_default();
        let reference = volume.as_ref().map_or_else(own, |image| image.reference.clone());
        c.state = ContainerState::Pulling { reason, message, volume };
        self.steps.push(Step::EnsureImage { container: container.name.clone(), reference, policy, for_volume });
    }

    /// The first image volume that the container mounts whose image is not known, or no longer on the node.
    fn lacking(&self, container: &Container) -> Option<(&'a str, &'a ImageVolumeSource)> {
        let volumes = self.spec.volumes.iter().flatten();
        let mut images = volumes.filter_map(|volume| Some((volume.name.as_str(), volume.image.as_ref()?)));
        images.find(|(name, source)| {
            let mounted = container.volume_mounts.iter().flatten().any(|mount| mount.name == *name);
            let here = || (self.world.image)(source.reference.as_deref().unwrap_or_default()).is_some();
            mounted && !(self.record.image_volumes.contains_key(*name) && here())
        })
    }

    /// The image that the container waits for, as the pod spells it.
    pub(super) fn next_image(&self, container: &Container) -> String {
        let of_volume = self.lacking(container).and_then(|(_, source)| source.reference.clone());
        of_volume.or_else(|| container.image.clone()).unwrap_or_default()
    }
}

fn already_present(reference: &str) -> String {
    format!("Container image {reference:?} already present on machine and can be accessed by the pod")
}

/// The policy of the spec, or the API's default for the image's tag.
pub(super) fn pull_policy(image: &str, policy: Option<&str>) -> PullPolicy {
    match policy {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        _ => {
            let name = image.rsplit('/').next().unwrap_or_default();
            let floating = !name.contains('@') && (!name.contains(':') || name.ends_with(":latest"));
            if floating { PullPolicy::Always } else { PullPolicy::IfNotPresent }
        }
    }
}
