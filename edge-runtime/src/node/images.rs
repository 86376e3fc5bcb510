//! The images that are on the node, as pods name them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::context::Context;
use crate::image::Reference;
use crate::image::access::{PodLogin, may_use};
use crate::store::image_record::ImageRecord;

impl Context {
    /// `status.imageID` of an image that is here, asked for as a pod with these pull secrets spells it; none where it
    /// takes a login that the pod does not have.
    pub(super) fn image_for(&self, reference: &str, secrets: &[PodLogin]) -> Option<String> {
        let name = Reference::parse(reference).ok()?;
        let image = self.stored_image(&name.to_string())?;
        may_use(&image, &name, &self.config.registries, secrets).then(|| image.image_id().to_owned())
    }

    /// Same as [`Context::image_for`], without a check of access.
    pub(super) fn image_id(&self, reference: &str) -> Option<String> {
        let name = Reference::parse(reference).ok()?.to_string();
        self.stored_image(&name).map(|image| image.image_id().to_owned())
    }

    /// The record behind an `imageID`, else behind the reference.
    pub(super) fn image_record(&self, image_id: &str, reference: &str) -> Option<ImageRecord> {
        self.stored_image(image_id).or_else(|| self.stored_image(&Reference::parse(reference).ok()?.to_string()))
    }

    /// The images of the image volumes that a container mounts, by volume.
    ///
    /// # Errors
    /// One is no longer on the node.
    pub(super) fn volume_images(
        &self,
        uid: &str,
        pod: &Pod,
        container: &Container,
    ) -> Result<BTreeMap<String, ImageRecord>, String> {
        let resolved = self.pods.get(uid).map(|entry| &entry.record.image_volumes);
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mut images = BTreeMap::new();
        for (volume, source) in volumes.filter_map(|volume| Some((&volume.name, volume.image.as_ref()?))) {
            if !container.volume_mounts.iter().flatten().any(|mount| mount.name == *volume) {
                continue;
            }
            let reference = source.reference.as_deref().unwrap_or_default();
            let id = resolved.and_then(|resolved| resolved.get(volume)).map_or(reference, String::as_str);
            let gone = || format!("image {id} of volume {volume:?} is no longer on this node");
            images.insert(volume.clone(), self.image_record(id, reference).ok_or_else(gone)?);
        }
        Ok(images)
    }

    pub(super) fn stored_image(&self, name: &str) -> Option<ImageRecord> {
        self.store.image_by_reference(name).unwrap_or_else(|error| {
            log::error!("{error}");
            None
        })
    }
}
