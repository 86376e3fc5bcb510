//! Images to fetch, one at a time (the kubelet's `serializeImagePulls`), each for all who wait for it.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::{Pod, Secret};

use super::Node;
use super::sources::News;
use crate::image::{ImageError, ImageRecord, Reference, spawn};
use crate::pod::event::{ImageFailure, PodEvent};
use crate::pod::record::ContainerKind;
use crate::pod::step::EventDraft;
use crate::store::StoreError;

/// Id of the image, or why it could not be had.
pub(super) type PullResult = Result<String, ImageError>;

/// Somebody waits for an image.
struct Waiter {
    uid: String,
    container: String,
    /// As the pod spells it.
    reference: String,
}

/// One image to fetch.
struct Job {
    /// Normalized.
    name: String,
    /// Docker config JSON of the pods' pull secrets.
    auth: Option<String>,
    waiters: Vec<Waiter>,
}

/// The first job is the one under way.
#[derive(Default)]
pub(super) struct Pulls {
    jobs: VecDeque<Job>,
}

impl Node {
    /// Asks for an image; the answer comes as news.
    pub(super) fn pull(&mut self, name: &str, uid: &str, container: &str, reference: &str, auth: Option<String>) {
        let waiter = Waiter { uid: uid.to_owned(), container: container.to_owned(), reference: reference.to_owned() };
        let message = format!("Pulling image \"{reference}\"");
        self.image_event(&waiter, false, "Pulling", message);
        if let Some(job) = self.pulls.jobs.iter_mut().find(|job| job.name == name && job.auth == auth) {
            job.waiters.push(waiter);
            return;
        }
        self.pulls.jobs.push_back(Job { name: name.to_owned(), auth, waiters: vec![waiter] });
        if self.pulls.jobs.len() == 1 {
            self.begin_pull();
        }
    }

    fn begin_pull(&self) {
        let Some(job) = self.pulls.jobs.front() else { return };
        let (name, auth) = (job.name.clone(), job.auth.clone());
        let (paths, news) = (self.paths.clone(), self.senders.news.clone());
        let registries = self.config.registries.clone();
        log::info!("pulling {name}");
        self.executor
            .spawn(async move {
                let result = spawn::pull(&paths, &name, auth, &registries).await;
                let _ = news.send(News::Pulled { reference: name, result }).await;
            })
            .detach();
    }

    pub(super) fn pulled(&mut self, name: &str, result: PullResult) -> Result<(), StoreError> {
        let Some(job) = self.pulls.jobs.pop_front() else { return Ok(()) };
        self.begin_pull();
        for waiter in job.waiters {
            let present = self.image_id(&waiter.reference);
            let container = waiter.container.clone();
            let event = match (&result, present) {
                (Ok(_), Some(image_id)) => {
                    let message = format!("Successfully pulled image \"{}\"", waiter.reference);
                    self.image_event(&waiter, false, "Pulled", message);
                    PodEvent::ImageReady { container, image_id }
                }
                // Offline is normal here: what the registry cannot refresh is used as it is.
                (Err(error), Some(image_id)) if error.reason() == "RegistryUnavailable" => {
                    let message = format!("{error}; using the image that is on this node");
                    self.image_event(&waiter, true, "Failed", message);
                    PodEvent::ImageReady { container, image_id }
                }
                (Err(error), _) => {
                    let message = error.to_string();
                    PodEvent::ImageFailed { container, failure: ImageFailure::Pull, message }
                }
                (Ok(_), None) => {
                    let message = format!("image {name} was pulled but is not in the store");
                    PodEvent::ImageFailed { container, failure: ImageFailure::Inspect, message }
                }
            };
            self.tell(&waiter.uid, event);
        }
        self.report.images_changed();
        Ok(())
    }

    fn image_event(&mut self, waiter: &Waiter, warning: bool, reason: &'static str, message: String) {
        let draft = EventDraft::container(warning, reason, message, ContainerKind::App, &waiter.container);
        if let Err(error) = self.pod_event(&waiter.uid, &draft) {
            log::error!("{error}");
        }
    }

    /// `status.imageID` of an image that is here, asked for as a pod spells it.
    pub(super) fn image_id(&self, reference: &str) -> Option<String> {
        let name = Reference::parse(reference).ok()?.to_string();
        self.stored_image(&name).map(|image| image.image_id().to_owned())
    }

    /// The record behind an `imageID`, else behind the reference.
    pub(super) fn image_record(&self, image_id: &str, reference: &str) -> Option<ImageRecord> {
        self.stored_image(image_id).or_else(|| self.stored_image(&Reference::parse(reference).ok()?.to_string()))
    }

    fn stored_image(&self, name: &str) -> Option<ImageRecord> {
        self.store.image_by_reference(name).unwrap_or_else(|error| {
            log::error!("{error}");
            None
        })
    }

    /// The pod's pull secrets as one docker config JSON; those that are missing are left out, as on a kubelet.
    pub(super) fn pull_secrets(&self, pod: &Pod) -> Option<String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let names = pod.spec.as_ref()?.image_pull_secrets.as_ref()?;
        let mut auths = serde_json::Map::new();
        for name in names {
            let Some(secret) = self.object("Secret", namespace, &name.name) else { continue };
            let Ok(secret) = serde_json::from_value::<Secret>(secret) else { continue };
            let data = secret.data.unwrap_or_default();
            let Some(json) = data.get(".dockerconfigjson") else { continue };
            let Ok(config) = serde_json::from_slice::<serde_json::Value>(&json.0) else { continue };
            if let Some(entries) = config.get("auths").and_then(|auths| auths.as_object()) {
                auths.extend(entries.clone());
            }
        }
        (!auths.is_empty()).then(|| serde_json::json!({ "auths": auths }).to_string())
    }
}
