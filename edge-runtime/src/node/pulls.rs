//! Images to fetch, one at a time (the kubelet's `serializeImagePulls`), each for all who wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::Node;
use super::sources::News;
use crate::image::access::{PodLogin, may_use};
use crate::image::spawn::Request;
use crate::image::{ImageError, ImageRecord, Reference, spawn};
use crate::pod::clock::Mono;
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
    /// Not its own image, but that of a volume: the events are the pod's.
    for_volume: bool,
    /// As the pod spells it.
    reference: String,
    asked: Mono,
}

/// One image to fetch.
struct Job {
    /// Normalized.
    name: String,
    /// The pods' pull secrets.
    secrets: Vec<PodLogin>,
    waiters: Vec<Waiter>,
    begun: Mono,
}

/// The first job is the one under way.
#[derive(Default)]
pub(super) struct Pulls {
    jobs: VecDeque<Job>,
    pub(super) prepull_at: Option<Mono>,
}

impl Pulls {
    pub(super) fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }
}

impl Node {
    /// Asks for an image; the answer comes as news.
    pub(super) fn pull(
        &mut self,
        name: &str,
        uid: &str,
        (container, for_volume): (String, bool),
        reference: &str,
        secrets: Vec<PodLogin>,
    ) {
        let (uid, reference) = (uid.to_owned(), reference.to_owned());
        let asked = self.mono();
        let waiter = Waiter { uid, container, for_volume, reference, asked };
        let message = format!("Pulling image {:?}", waiter.reference);
        self.image_event(&waiter, false, "Pulling", message);
        if let Some(job) = self.pulls.jobs.iter_mut().find(|job| job.name == name && job.secrets == secrets) {
            job.waiters.push(waiter);
            return;
        }
        self.enqueue(Job { name: name.to_owned(), secrets, waiters: vec![waiter], begun: asked });
    }

    /// Asks for an image that no pod waits for.
    pub(super) fn fetch(&mut self, name: String) {
        let begun = self.mono();
        self.enqueue(Job { name, secrets: Vec::new(), waiters: Vec::new(), begun });
    }

    fn enqueue(&mut self, job: Job) {
        self.pulls.jobs.push_back(job);
        if self.pulls.jobs.len() == 1 {
            self.begin_pull();
        }
    }

    fn begin_pull(&mut self) {
        let now = self.clock.now();
        let Some(job) = self.pulls.jobs.front_mut() else { return };
        job.begun = now.mono;
        let (name, secrets) = (job.name.clone(), job.secrets.clone());
        let (paths, news) = (self.paths.clone(), self.senders.news.clone());
        let request = Request {
            auth: None,
            secrets,
            registries: self.config.registries.clone(),
            auth_file: self.config.pull.auth_file.clone(),
            bytes_per_second: self.config.pull.bytes_per_second,
        };
        let window = self.config.pull.window.clone();
        let open = window.as_ref().map(|window| window.open_for(now.wall.as_second()));
        log::info!("pulling {name}");
        self.executor
            .spawn(async move {
                let fetch = spawn::pull(&paths, &name, &request);
                let closed = |left: Duration| async move {
                    smol::Timer::after(left).await;
                    let hours = window.map(|window| window.text).unwrap_or_default();
                    // As if there were no link: what is on the node is used.
                    let reason = "RegistryUnavailable".to_owned();
                    let why = format!("this node pulls images only from {hours} UTC (pull.window)");
                    Err(ImageError::Helper { reason, why })
                };
                let result = match open {
                    None => fetch.await,
                    Some(None) => closed(Duration::ZERO).await,
                    // Stopped in the middle, the next pull goes on where this one ended.
                    Some(Some(left)) => smol::future::or(fetch, closed(left)).await,
                };
                let _ = news.send(News::Pulled { reference: name.clone(), result }).await;
            })
            .detach();
    }

    pub(super) fn pulled(&mut self, name: &str, result: PullResult) -> Result<(), StoreError> {
        let Some(job) = self.pulls.jobs.pop_front() else { return Ok(()) };
        self.begin_pull();
        for waiter in &job.waiters {
            let present = self.image_for(&waiter.reference, &job.secrets);
            let container = waiter.container.clone();
            let event = match (&result, present) {
                (Ok(_), Some(image_id)) => {
                    let message = self.pulled_message(waiter, job.begun, &image_id);
                    self.image_event(waiter, false, "Pulled", message);
                    PodEvent::ImageReady { container, image_id }
                }
                // Offline is normal here: what the registry cannot refresh is used as it is.
                (Err(error), Some(image_id)) if error.reason() == "RegistryUnavailable" => {
                    let message = format!("{error}; using the image that is on this node");
                    self.image_event(waiter, true, "Failed", message);
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
        if job.waiters.is_empty() {
            match &result {
                Ok(_) => self.pulls.prepull_at = None,
                Err(error) => log::warn!("{}: {error}; trying again later", job.name),
            }
        }
        self.report.images_changed();
        Ok(())
    }

    /// As the kubelet's.
    fn pulled_message(&self, waiter: &Waiter, begun: Mono, image_id: &str) -> String {
        let now = self.mono();
        let (took, waited) = (go_duration(now.since(begun)), go_duration(now.since(waiter.asked)));
        let size = self.image_record(image_id, &waiter.reference).map_or(0, |image| image.size);
        let image = &waiter.reference;
        format!("Successfully pulled image {image:?} in {took} ({waited} including waiting). Image size: {size} bytes.")
    }

    fn image_event(&mut self, waiter: &Waiter, warning: bool, reason: &'static str, message: String) {
        let draft = match waiter.for_volume {
            true => EventDraft::pod(warning, reason, message),
            false => {
                let record =
                    self.pods.get(&waiter.uid).and_then(|entry| entry.record.containers.get(&waiter.container));
                let kind = record.map_or(ContainerKind::App, |record| record.kind);
                EventDraft::container(warning, reason, message, kind, &waiter.container)
            }
        };
        if let Err(error) = self.pod_event(&waiter.uid, &draft) {
            log::error!("{error}");
        }
    }

    /// `status.imageID` of an image that is here, asked for as a pod with these pull secrets spells it; none where it
    /// takes a login that the pod does not have.
    pub(super) fn image_for(&self, reference: &str, secrets: &[PodLogin]) -> Option<String> {
        let name = Reference::parse(reference).ok()?;
        let image = self.stored_image(&name.to_string())?;
        may_use(&image, &name, &self.config.registries, secrets).then(|| image.image_id().to_owned())
    }

    /// As [`Node::image_for`], whoever may use it.
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

    fn stored_image(&self, name: &str) -> Option<ImageRecord> {
        self.store.image_by_reference(name).unwrap_or_else(|error| {
            log::error!("{error}");
            None
        })
    }
}

/// As Go prints a duration cut to milliseconds: `734ms`, `1.5s`, `2m3.25s`.
fn go_duration(time: Duration) -> String {
    let ms = time.as_millis();
    let seconds = |ms: u128| {
        let text = format!("{}.{:03}", ms / 1000, ms % 1000);
        format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..60_000 => seconds(ms),
        60_000..3_600_000 => format!("{}m{}", ms / 60_000, seconds(ms % 60_000)),
        _ => format!("{}h{}m{}", ms / 3_600_000, ms / 60_000 % 60, seconds(ms % 60_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_gos() {
        let text = |ms| go_duration(Duration::from_millis(ms));
        assert_eq!([text(734), text(1500), text(2000), text(123_250)], ["734ms", "1.5s", "2s", "2m3.25s"]);
        assert_eq!(text(3_661_001), "1h1m1.001s");
    }
}
