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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::rc::Rc;

    use serde_json::json;

    use super::*;
    use crate::image::access::secret_key;
    use crate::node::pods::Entry;
    use crate::pod::record::PodRecord;
    use crate::store::image_record::{Access, ImageConfig};

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn put(cx: &mut Context, id: &str, references: &[&str], access: Access) {
        let references = references.iter().map(|&reference| reference.to_owned()).collect();
        let config = ImageConfig::default();
        let image =
            ImageRecord { id: id.to_owned(), references, config, layers: Vec::new(), size: 1, pulled_at: 0, access };
        cx.store.write(|writer| writer.image_put(&image)).unwrap();
    }

    #[test]
    fn image_is_found_by_each_spelling_of_its_name() {
        let (_folder, mut cx) = Context::in_a_folder();
        let by_digest = format!("docker.io/library/app@{DIGEST}");
        put(&mut cx, "sha256:1", &["docker.io/library/app:latest", &by_digest], Access::new());
        for name in ["app", "app:latest", "docker.io/library/app"] {
            assert_eq!(cx.image_for(name, &[]).as_deref(), Some(by_digest.as_str()), "{name}");
        }
        for name in ["app:1", "quay.io/app", "", "UPPER/", "a b"] {
            assert_eq!((cx.image_for(name, &[]), cx.image_id(name)), (None, None), "{name:?}");
        }
    }

    #[test]
    fn image_of_a_login_is_not_there_for_a_pod_without_it() {
        let (_folder, mut cx) = Context::in_a_folder();
        let key = secret_key("ns", "login", "u1");
        let access = Access::from([("registry.example/app".to_owned(), BTreeSet::from([key.clone()]))]);
        put(&mut cx, "sha256:1", &["registry.example/app:1"], access);
        let of = |key| cx.image_for("registry.example/app:1", &[PodLogin { key, document: String::new() }]);
        assert_eq!(of(key).as_deref(), Some("sha256:1"));
        assert_eq!(of(secret_key("other", "login", "u1")), None);
        assert_eq!(cx.image_for("registry.example/app:1", &[]), None);
        assert_eq!(cx.image_id("registry.example/app:1").as_deref(), Some("sha256:1"), "it is here");
    }

    #[test]
    fn container_has_the_resolved_images_of_the_volumes_it_mounts() {
        let (_folder, mut cx) = Context::in_a_folder();
        put(&mut cx, "sha256:old", &[], Access::new());
        put(&mut cx, "sha256:new", &["registry.example/data:1"], Access::new());
        let image = |name: &str| json!({"name": name, "image": {"reference": "registry.example/data:1"}});
        let gone = json!({"name": "gone", "image": {"reference": "registry.example/gone:1"}});
        let volumes = json!([image("fixed"), image("open"), gone, {"name": "none", "image": {}}, {"name": "plain"}]);
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "volumes": volumes}})).unwrap();
        let mut record = PodRecord { uid: "u".to_owned(), ..PodRecord::default() };
        record.image_volumes.insert("fixed".to_owned(), "sha256:old".to_owned());
        cx.pods.insert(Entry::new(Rc::new(pod.clone()), record));
        let of = |names: &[&str]| {
            let mounts: Vec<_> = names.iter().map(|name| json!({"name": name, "mountPath": "/data"})).collect();
            let container: Container = serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).unwrap();
            let images = cx.volume_images("u", &pod, &container)?;
            Ok::<_, String>(images.into_iter().map(|(volume, image)| (volume, image.id)).collect::<Vec<_>>())
        };
        let pair = |volume: &str, id: &str| (volume.to_owned(), id.to_owned());
        let both = vec![pair("fixed", "sha256:old"), pair("open", "sha256:new")];
        assert_eq!(of(&["open", "fixed", "plain"]), Ok(both), "a later pull of the same name changes nothing");
        assert_eq!(of(&[]), Ok(Vec::new()));
        let missing = |id: &str, volume: &str| format!("image {id} of volume {volume:?} is no longer on this node");
        assert_eq!(of(&["gone"]), Err(missing("registry.example/gone:1", "gone")));
        assert_eq!(of(&["none"]), Err(missing("", "none")));
    }
}
