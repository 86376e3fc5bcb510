//! Images to pull, one at a time ([`queue`]), each for all pods that wait for it. A local image that must be checked
//! (`imagePullPolicy: Always`) does not wait for downloads: the registry gets a few seconds to say whether it has
//! another one.

mod outcome;
mod queue;
pub(super) mod secrets;
mod wanted;

use std::rc::Rc;
use std::time::Duration;

use async_executor::Task;
use smol::lock::Semaphore;

use super::context::Context;
use super::sources::{News, PullResult};
use crate::config::Window;
use crate::counters;
use crate::image::access::PodLogin;
use crate::image::progress::Progress;
use crate::image::spawn::Request;
use crate::image::{ImageError, Reference, spawn};
use crate::net::proxy::Use;
use crate::pod::clock::Mono;
use crate::pod::event::PodEvent;
use crate::pod::step::EventDraft;
use crate::sys::time::within;
use crate::sys::vec_map::VecMap;
use outcome::{Outcome, go_duration, is_unreachable};
use queue::{Job, Queue, Stage};

/// Timeout of a registry's answer about a local image, from the request on. With twenty such pods and no network, a
/// board is up three seconds later, not minutes.
const CHECK: Duration = Duration::from_secs(3);
/// Registries asked at once: each time it is a process.
const MOST_CHECKS: usize = 8;

/// A container that waits for an image.
pub(super) struct Waiter {
    pub(super) uid: String,
    pub(super) container: String,
    /// Not its own image, but that of a volume: the events are the pod's.
    pub(super) for_volume: bool,
    /// The reference as the pod spells it.
    pub(super) reference: String,
    pub(super) asked: Mono,
}

pub(super) struct Pulls {
    queue: Queue<Waiter>,
    /// Tasks by number of the job; dropping one stops it.
    tasks: VecMap<u64, Task<()>>,
    checks: Rc<Semaphore>,
    prepull_at: Option<Mono>,
    /// The disk is being cleared: no download begins.
    pub(super) short_of_disk: bool,
}

impl Default for Pulls {
    fn default() -> Self {
        let checks = Rc::new(Semaphore::new(MOST_CHECKS));
        Self { queue: Queue::default(), tasks: VecMap::new(), checks, prepull_at: None, short_of_disk: false }
    }
}

impl Pulls {
    /// Asks for an image; the answer comes as news.
    fn pull(&mut self, cx: &mut Context, name: &str, waiter: Waiter, secrets: Vec<PodLogin>) {
        let message = format!("Pulling image {:?}", waiter.reference);
        image_event(cx, &waiter, false, "Pulling", message);
        if let Some(job) = self.queue.same(name, &secrets) {
            job.waiters.push(waiter);
            return;
        }
        let stage = if cx.stored_image(name).is_some() { Stage::Checked } else { Stage::Waiting };
        self.enqueue(cx, name, secrets, vec![waiter], stage);
    }

    /// Asks for an image that no pod waits for.
    fn fetch(&mut self, cx: &Context, name: &str) {
        self.enqueue(cx, name, Vec::new(), Vec::new(), Stage::Waiting);
    }

    fn enqueue(&mut self, cx: &Context, name: &str, secrets: Vec<PodLogin>, waiters: Vec<Waiter>, stage: Stage) {
        let registry = Reference::parse(name).map(|name| name.registry).unwrap_or_default();
        let (name, started) = (name.to_owned(), cx.mono());
        let number = self.queue.add(Job { number: 0, name, registry, secrets, waiters, stage, started });
        match stage {
            Stage::Checked => self.begin_check(cx, number),
            _ => self.begin(cx),
        }
    }

    /// Begins what is next, if it is time.
    fn begin(&mut self, cx: &Context) {
        // Not into a disk that is being cleared: this one would have to end for it.
        let short = self.short_of_disk;
        let now = cx.clock.now();
        while let Some(job) = self.queue.begin(now.mono) {
            let (number, name) = (job.number, job.name.clone());
            let request = request(&cx.config, &job.secrets);
            let paths = cx.paths.clone();
            let window = cx.config.pull.hours.clone();
            let open = window.as_ref().map(|window| window.open_for(now.wall.as_second()));
            log::info!("pulling {name}");
            let news = cx.senders.news.clone();
            // What the loop has no room for is told with the next.
            let tell = move |progress| drop(news.try_send(News::Pulling { job: number, progress }));
            let task = cx.task(async move {
                let fetch = async { spawn::pull(&paths, &name, &request, tell).await.map(Some) };
                let closed = || Err(not_asked(window.as_ref().map(only_within).unwrap_or_default()));
                let result = match open {
                    _ if short => Err(ImageError::Helper {
                        reason: "ErrImagePull".to_owned(),
                        why: format!("{name} is not pulled while the node is short of disk"),
                    }),
                    None => fetch.await,
                    Some(None) => closed(),
                    // After an interruption the next pull resumes this one.
                    Some(Some(left)) => within(left, fetch).await.unwrap_or_else(closed),
                };
                News::Pulled { job: number, result }
            });
            self.tasks.insert(number, task);
        }
    }

    /// Asks the registry, in parallel to downloads, whether the local image is still the current one.
    fn begin_check(&mut self, cx: &Context, number: u64) {
        let now = cx.clock.now();
        let Some(job) = self.queue.get(number) else { return };
        let (name, registry) = (job.name.clone(), job.registry.clone());
        let request = request(&cx.config, &job.secrets);
        let (paths, checks) = (cx.paths.clone(), Rc::clone(&self.checks));
        let closed = cx.config.pull.hours.as_ref().filter(|window| window.open_for(now.wall.as_second()).is_none());
        let why_not = match closed {
            Some(window) => Some(only_within(window)),
            None if self.queue.is_silent(&registry, now.mono) => {
                Some(format!("registry {registry} cannot be reached for {name}: it was silent less than a minute ago"))
            }
            None => None,
        };
        let task = cx.task(async move {
            let check = async {
                let _permit = checks.acquire().await;
                spawn::check(&paths, &name, &request).await
            };
            let seconds = CHECK.as_secs();
            let late = || format!("registry {registry} cannot be reached for {name}: no answer in {seconds} s");
            let result = match why_not {
                Some(why) => Err(not_asked(why)),
                None => within(CHECK, check).await.unwrap_or_else(|| Err(not_asked(late()))),
            };
            News::Pulled { job: number, result }
        });
        self.tasks.insert(number, task);
    }

    /// Ends the downloads under way; what they have stays for the next try.
    pub(super) fn stop(&mut self, cx: &mut Context, why: &str) {
        for number in self.queue.fetched() {
            let reason = "ErrImagePull".to_owned();
            let name = self.queue.get(number).map(|job| job.name.clone()).unwrap_or_default();
            log::warn!("the pull of {name} is stopped: {why}");
            let error = ImageError::Helper { reason, why: format!("{name}: {why}") };
            self.done(cx, number, Err(error));
        }
    }

    /// An event for each pod that waits for this pull.
    pub(super) fn tell(&self, cx: &mut Context, number: u64, progress: Progress) {
        for waiter in self.queue.get(number).into_iter().flat_map(|job| &job.waiters) {
            image_event(cx, waiter, false, "Pulling", format!("Pulling image {:?}: {progress}", waiter.reference));
        }
    }

    pub(super) fn done(&mut self, cx: &mut Context, number: u64, result: PullResult) {
        // Kills a helper that is still at it.
        self.tasks.remove(&number);
        if matches!(result, Ok(None)) {
            self.queue.wait(number);
            return self.begin(cx);
        }
        let Some(job) = self.queue.end(number) else { return };
        let counter = if result.is_ok() { &counters::PULLS } else { &counters::FAILED_PULLS };
        counter.one();
        self.queue.heard(&job.registry, job.stage, !is_unreachable(&result), cx.mono());
        self.begin(cx);
        for waiter in &job.waiters {
            let present = cx.image_for(&waiter.reference, &job.secrets);
            let container = waiter.container.clone();
            let event = match Outcome::of(&result, present, &job.name) {
                Outcome::Pulled { image_id } => {
                    let message = pulled_message(cx, waiter, job.started, &image_id);
                    image_event(cx, waiter, false, "Pulled", message);
                    PodEvent::ImageReady { container, image_id }
                }
                Outcome::Kept { image_id, message } => {
                    image_event(cx, waiter, true, "Failed", message);
                    PodEvent::ImageReady { container, image_id }
                }
                Outcome::Failed { failure, message } => PodEvent::ImageFailed { container, failure, message },
            };
            cx.tell(&waiter.uid, event);
        }
        if job.waiters.is_empty() {
            match &result {
                Ok(_) => self.prepull_at = None,
                Err(error) => log::warn!("{}: {error}; trying again later", job.name),
            }
        }
        cx.look_now();
    }
}

fn request(config: &crate::config::Config, secrets: &[PodLogin]) -> Request {
    Request {
        auth: None,
        secrets: secrets.to_vec(),
        registries: config.registries.clone(),
        auth_file: config.pull.auth_file.clone(),
        bytes_per_second: config.pull.bytes_per_second,
        proxy: config.proxy.of(Use::Pull),
    }
}

/// The kubelet's message.
fn pulled_message(cx: &Context, waiter: &Waiter, started: Mono, image_id: &str) -> String {
    let now = cx.mono();
    let (took, waited) = (go_duration(now.since(started)), go_duration(now.since(waiter.asked)));
    let size = cx.image_record(image_id, &waiter.reference).map_or(0, |image| image.size);
    let image = &waiter.reference;
    format!("Successfully pulled image {image:?} in {took} ({waited} including waiting). Image size: {size} bytes.")
}

fn image_event(cx: &mut Context, waiter: &Waiter, warning: bool, reason: &'static str, message: String) {
    let draft = match waiter.for_volume {
        true => EventDraft::pod(warning, reason, message),
        false => cx.about_container(&waiter.uid, &waiter.container, warning, reason, message),
    };
    if let Err(error) = cx.pod_event(&waiter.uid, &draft) {
        log::error!("{error}");
    }
}

fn only_within(window: &Window) -> String {
    format!("this node pulls images only from {} UTC (pull.window)", window.text)
}

/// An error as if there were no link: the local image is used.
fn not_asked(why: String) -> ImageError {
    ImageError::Helper { reason: "RegistryUnavailable".to_owned(), why }
}

#[cfg(test)]
mod tests;
