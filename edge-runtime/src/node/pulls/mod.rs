//! Images to fetch, one at a time ([`queue`]), each for all who wait for it. One that is here and has to be asked about
//! (`imagePullPolicy: Always`) waits for no download: the registry has a few seconds to say that it has another.

mod prepull;
mod queue;
mod secrets;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_executor::Task;
use k8s_openapi::api::core::v1::{Container, Pod};
use smol::future::or;
use smol::lock::Semaphore;

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
use queue::{Job, Queue, Stage};

/// Id of the image, or why it could not be had. None: the image that is here is not the one to use.
pub(super) type PullResult = Result<Option<String>, ImageError>;

/// What a registry has to answer about an image that is here, from the moment it was asked for: with twenty such pods
/// and no way out a board is up three seconds later, not minutes.
const CHECK: Duration = Duration::from_secs(3);
/// Registries asked at once: each time it is a process.
const MOST_CHECKS: usize = 8;

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

pub(super) struct Pulls {
    queue: Queue<Waiter>,
    /// By number of the job; one that is dropped is stopped.
    tasks: BTreeMap<u64, Task<()>>,
    checks: Rc<Semaphore>,
    pub(super) prepull_at: Option<Mono>,
}

impl Default for Pulls {
    fn default() -> Self {
        let checks = Rc::new(Semaphore::new(MOST_CHECKS));
        Self { queue: Queue::default(), tasks: BTreeMap::new(), checks, prepull_at: None }
    }
}

impl Pulls {
    pub(super) fn is_busy(&self) -> bool {
        !self.queue.is_empty()
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
        if let Some(job) = self.pulls.queue.same(name, &secrets) {
            job.waiters.push(waiter);
            return;
        }
        let stage = if self.stored_image(name).is_some() { Stage::Checked } else { Stage::Waiting };
        self.enqueue(name, secrets, vec![waiter], stage);
    }

    /// Asks for an image that no pod waits for.
    pub(super) fn fetch(&mut self, name: &str) {
        self.enqueue(name, Vec::new(), Vec::new(), Stage::Waiting);
    }

    fn enqueue(&mut self, name: &str, secrets: Vec<PodLogin>, waiters: Vec<Waiter>, stage: Stage) {
        let registry = Reference::parse(name).map(|name| name.registry).unwrap_or_default();
        let (name, begun) = (name.to_owned(), self.mono());
        let number = self.pulls.queue.add(Job { number: 0, name, registry, secrets, waiters, stage, begun });
        match stage {
            Stage::Checked => self.begin_check(number),
            _ => self.begin_pulls(),
        }
    }

    /// Begins what is next, if it is time.
    pub(super) fn begin_pulls(&mut self) {
        // Not into a disk that is being cleared: this one would have to end for it.
        let short = self.is_short_of_disk();
        let now = self.clock.now();
        while let Some(job) = self.pulls.queue.begin(now.mono) {
            let (number, name) = (job.number, job.name.clone());
            let request = Self::request(&self.config, &job.secrets);
            let (paths, news) = (self.paths.clone(), self.senders.news.clone());
            let window = self.config.pull.window.clone();
            let open = window.as_ref().map(|window| window.open_for(now.wall.as_second()));
            log::info!("pulling {name}");
            let task = self.executor.spawn(async move {
                let fetch = async { spawn::pull(&paths, &name, &request).await.map(Some) };
                let closed = |left: Duration| async move {
                    smol::Timer::after(left).await;
                    let hours = window.map(|window| window.text).unwrap_or_default();
                    Err(not_asked(format!("this node pulls images only from {hours} UTC (pull.window)")))
                };
                let result = match open {
                    _ if short => Err(ImageError::Helper {
                        reason: "ErrImagePull".to_owned(),
                        why: format!("{name} is not pulled while the node is short of disk"),
                    }),
                    None => fetch.await,
                    Some(None) => closed(Duration::ZERO).await,
                    // Stopped in the middle, the next pull goes on where this one ended.
                    Some(Some(left)) => or(fetch, closed(left)).await,
                };
                let _ = news.send(News::Pulled { job: number, result }).await;
            });
            self.pulls.tasks.insert(number, task);
        }
    }

    /// Asks beside all downloads whether the image that is here is still the one that the registry has.
    fn begin_check(&mut self, number: u64) {
        let now = self.clock.now();
        let Some(job) = self.pulls.queue.get(number) else { return };
        let (name, registry) = (job.name.clone(), job.registry.clone());
        let request = Self::request(&self.config, &job.secrets);
        let (paths, news, checks) = (self.paths.clone(), self.senders.news.clone(), Rc::clone(&self.pulls.checks));
        let closed = self.config.pull.window.as_ref().filter(|window| window.open_for(now.wall.as_second()).is_none());
        let why_not = match closed {
            Some(window) => Some(format!("this node pulls images only from {} UTC (pull.window)", window.text)),
            None if self.pulls.queue.is_silent(&registry, now.mono) => {
                Some(format!("registry {registry} cannot be reached for {name}: it was silent less than a minute ago"))
            }
            None => None,
        };
        let task = self.executor.spawn(async move {
            let check = async {
                let _permit = checks.acquire().await;
                spawn::check(&paths, &name, &request).await
            };
            let late = async {
                smol::Timer::after(CHECK).await;
                let seconds = CHECK.as_secs();
                Err(not_asked(format!("registry {registry} cannot be reached for {name}: no answer in {seconds} s")))
            };
            let result = match why_not {
                Some(why) => Err(not_asked(why)),
                None => or(check, late).await,
            };
            let _ = news.send(News::Pulled { job: number, result }).await;
        });
        self.pulls.tasks.insert(number, task);
    }

    fn request(config: &crate::config::Config, secrets: &[PodLogin]) -> Request {
        Request {
            auth: None,
            secrets: secrets.to_vec(),
            registries: config.registries.clone(),
            auth_file: config.pull.auth_file.clone(),
            bytes_per_second: config.pull.bytes_per_second,
        }
    }

    /// Ends the downloads under way; what they have stays for the next try.
    pub(super) fn stop_pulls(&mut self, why: &str) {
        for number in self.pulls.queue.fetched() {
            let reason = "ErrImagePull".to_owned();
            let name = self.pulls.queue.get(number).map(|job| job.name.clone()).unwrap_or_default();
            log::warn!("the pull of {name} is stopped: {why}");
            let error = ImageError::Helper { reason, why: format!("{name}: {why}") };
            if let Err(error) = self.pulled(number, Err(error)) {
                log::error!("{error}");
            }
        }
    }

    pub(super) fn pulled(&mut self, number: u64, result: PullResult) -> Result<(), StoreError> {
        // Kills a helper that is still at it.
        self.pulls.tasks.remove(&number);
        if matches!(result, Ok(None)) {
            self.pulls.queue.wait(number);
            self.begin_pulls();
            return Ok(());
        }
        let Some(job) = self.pulls.queue.end(number) else { return Ok(()) };
        let unreachable = matches!(&result, Err(error) if error.reason() == "RegistryUnavailable");
        if job.stage == Stage::Fetched || !self.pulls.queue.is_silent(&job.registry, self.mono()) {
            let now = self.mono();
            self.pulls.queue.heard(&job.registry, !unreachable, now);
        }
        self.begin_pulls();
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
                (Err(error), Some(image_id)) if unreachable => {
                    let message = format!("{error}; using the image that is on this node");
                    self.image_event(waiter, true, "Failed", message);
                    PodEvent::ImageReady { container, image_id }
                }
                (Err(error), _) => {
                    let message = error.to_string();
                    PodEvent::ImageFailed { container, failure: ImageFailure::Pull, message }
                }
                (Ok(_), None) => {
                    let message = format!("image {} was pulled but is not in the store", job.name);
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
        self.node_status.images_changed();
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

/// As if there were no link: what is on the node is used.
fn not_asked(why: String) -> ImageError {
    ImageError::Helper { reason: "RegistryUnavailable".to_owned(), why }
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
