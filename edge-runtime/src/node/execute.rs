//! What each step of a pod does: thin calls into launch, images and the monitor.

use std::borrow::Cow;
use std::process::Stdio;
use std::time::Duration;

use edge_protocol::message::Report;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::Signal;

use super::sources::News;
use super::{ContainerRef, Node};
use crate::image::Reference;
use crate::launch::Attempt;
use crate::launch::look::Look;
use crate::launch::looking::Trouble;
use crate::monitor::client::ClientError;
use crate::monitor::protocol::StartContainer;
use crate::pod::admission;
use crate::pod::backoff::pause_after;
use crate::pod::ephemeral;
use crate::pod::event::{ImageFailure, PodEvent, StartFailure};
use crate::pod::pause::{PAUSE, shares_processes};
use crate::pod::record::{ContainerKind, ContainerState, PodSource, StopReason};
use crate::pod::spec::containers_of;
use crate::pod::step::{EventDraft, PullPolicy, StopSignal};
use crate::pod::stop_signal;
use crate::pod::support::container_refusal;
use crate::store::StoreError;
use crate::sys::program;

impl Node {
    /// An answer at once, or none and a pull under way.
    pub(super) fn ensure_image(
        &mut self,
        uid: &str,
        pod: &Pod,
        (container, for_volume): (String, bool),
        reference: &str,
        policy: PullPolicy,
    ) -> Option<PodEvent> {
        let name = match Reference::parse(reference) {
            Ok(name) => name.to_string(),
            Err(error) => {
                let (failure, message) =
                    (ImageFailure::InvalidName, format!("Failed to apply default image tag {reference:?}: {error}"));
                return Some(PodEvent::ImageFailed { container, failure, message });
            }
        };
        let secrets = self.pull_secrets(pod);
        let present = self.image_for(reference, &secrets.found);
        match (policy, present) {
            (PullPolicy::Never | PullPolicy::IfNotPresent, Some(image_id)) => {
                Some(PodEvent::ImageReady { container, image_id })
            }
            (PullPolicy::Never, None) => {
                let message = format!("Container image {reference:?} is not present with pull policy of Never");
                Some(PodEvent::ImageFailed { container, failure: ImageFailure::NeverPull, message })
            }
            (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, None) => {
                if let Some(message) = secrets.warning() {
                    self.warn_about_pod(uid, "FailedToRetrieveImagePullSecret", message);
                }
                self.pull(&name, uid, (container, for_volume), reference, secrets.found);
                None
            }
        }
    }

    pub(super) fn start_container(
        &mut self,
        uid: &str,
        pod: &Pod,
        container: &str,
        attempt: u32,
        id: &str,
        image_id: &str,
    ) -> Option<PodEvent> {
        let failed = |failure, message: String| {
            Some(PodEvent::StartFailed { container: container.to_owned(), id: id.to_owned(), failure, message })
        };
        if container == PAUSE {
            let store = &self.store;
            // Tokens too: after a restart of the daemon the pod's volumes are made once more.
            let objects = |kind: &str, namespace: &str, name: &str| store.lookup(kind, namespace, name);
            return match self.launcher.prepare_pause(pod, attempt, id, &objects) {
                Ok(start) => {
                    self.hand_over(
                        ContainerRef { uid: uid.to_owned(), container: container.to_owned(), attempt },
                        start,
                        Vec::new(),
                    );
                    None
                }
                Err((failure, message)) => failed(failure, message),
            };
        }
        let pod = &*match self.pods.get(uid) {
            Some(entry) => admission::allocated(pod, &entry.record),
            None => Cow::Borrowed(pod),
        };
        let Some(definition) = ephemeral::definition(pod, container) else {
            return failed(StartFailure::Config, format!("container {container} is not in the pod's spec"));
        };
        if let Some(message) = pod.spec.as_ref().and_then(|spec| container_refusal(spec, container)) {
            return failed(StartFailure::Config, message);
        }
        let join_pid = match self.pid_to_join(uid, pod, container) {
            Ok(pid) => pid,
            Err(message) => return failed(StartFailure::Config, message),
        };
        let Some(image) = self.image_record(image_id, &definition.image.clone().unwrap_or_default()) else {
            return failed(StartFailure::Create, format!("image {image_id} is no longer on this node"));
        };
        let ips = self.pods.get(uid).map(|entry| entry.record.ips.clone()).unwrap_or_default();
        let store = &self.store;
        let objects = |kind: &str, namespace: &str, name: &str| store.lookup(kind, namespace, name);
        let image_volumes = match self.volume_images(uid, pod, &definition) {
            Ok(images) => images,
            Err(message) => return failed(StartFailure::Create, message),
        };
        let which = Attempt { container: &definition, number: attempt, id, join_pid, image_volumes: &image_volumes };
        let ready = match self.launcher.prepare_container(pod, &which, &image, &ips, &objects) {
            Ok(ready) => ready,
            Err((failure, message)) => return failed(failure, message),
        };
        for (reason, message) in ready.warnings {
            self.warn_about_pod(uid, reason, message);
        }
        let owner = ContainerRef { uid: uid.to_owned(), container: container.to_owned(), attempt };
        let prepared = PodEvent::Prepared { container: container.to_owned(), id: id.to_owned(), user: ready.user };
        self.storage_changed();
        let folder = self.pods.get(uid).map(|entry| {
            let record = &entry.record;
            self.paths.pod_logs(&record.namespace, &record.name, uid).join(container)
        });
        crate::logs::retain::drop_before(&folder.unwrap_or_default(), attempt.saturating_sub(1));
        self.hand_over(owner, ready.start, ready.looks);
        Some(prepared)
    }

    /// Has the monitor start what is prepared, after a helper has seen to its foreign volumes.
    fn hand_over(&mut self, owner: ContainerRef, start: StartContainer, looks: Vec<Look>) {
        let id = start.id.clone();
        self.containers.insert(id.clone(), owner);
        let (monitor, news, helper) = (self.monitor.clone(), self.senders.news.clone(), self.launcher.looks().clone());
        self.executor
            .spawn(async move {
                if let Err(Trouble::Failed(message)) = helper.all(looks).await {
                    let _ = news.send(News::StartRefused { id, failure: StartFailure::Config, message }).await;
                    return;
                }
                match monitor.start(start).await {
                    // The next monitor's list tells whether the last one has begun it.
                    Ok(()) | Err(ClientError::Gone) => {}
                    // The loop is gone only when the process ends.
                    Err(error) => {
                        let (failure, message) = (StartFailure::Run, error.to_string());
                        drop(news.send(News::StartRefused { id, failure, message }).await);
                    }
                }
            })
            .detach();
    }

    /// The process whose pid namespace a container shares.
    fn pid_to_join(&self, uid: &str, pod: &Pod, container: &str) -> Result<Option<i32>, String> {
        let shared = pod.spec.as_ref().is_some_and(shares_processes).then_some(PAUSE);
        let Some(target) = shared.or_else(|| ephemeral::target(pod, container)) else { return Ok(None) };
        let record = self.pods.get(uid).and_then(|entry| entry.record.containers.get(target));
        match record.map(|record| &record.state) {
            // The first process of a namespace takes all others with it: they end before it does.
            Some(ContainerState::Running { pid, .. }) if crate::sys::host::is_alive(*pid) => Ok(Some(*pid)),
            _ => Err(format!("unable to find target container {target}")),
        }
    }

    pub(super) fn kill_container(&self, uid: &str, container: &str, id: &str, signal: StopSignal, because: StopReason) {
        let signal = match signal {
            StopSignal::Kill => Signal::SIGKILL as i32,
            StopSignal::Stop { .. } => self.stop_signal(uid, container),
        };
        log::info!("container {container} ({}): signal {signal} because {because:?}", id.get(..12).unwrap_or(id));
        self.send_signal(id, signal);
    }

    pub(super) fn send_signal(&self, id: &str, signal: i32) {
        let (monitor, id) = (self.monitor.clone(), id.to_owned());
        self.executor
            .spawn(async move {
                if let Err(error) = monitor.kill(&id, signal).await {
                    log::debug!("signal {signal} to container {id}: {error}");
                }
            })
            .detach();
    }

    /// `lifecycle.stopSignal`, else the image's STOPSIGNAL, else SIGTERM.
    fn stop_signal(&self, uid: &str, container: &str) -> i32 {
        let entry = self.pods.get(uid);
        let definition = entry.and_then(|entry| containers_of(&entry.pod).find(|one| one.name == container));
        let own = definition.and_then(|one| stop_signal::number(one.lifecycle.as_ref()?.stop_signal.as_deref()?));
        let of_image = || {
            let record = entry?.record.containers.get(container)?;
            stop_signal::number(&self.image_record(&record.image_id, &record.image)?.config.stop_signal?)
        };
        own.or_else(of_image).unwrap_or(Signal::SIGTERM as i32)
    }

    pub(super) fn remove_container(&mut self, owner: ContainerRef, id: &str) {
        self.containers.insert(id.to_owned(), owner);
        self.delete_container(id, Duration::ZERO);
    }

    /// Has the monitor forget an ended container; the answer is news.
    pub(super) fn delete_container(&self, id: &str, after: Duration) {
        let (monitor, news, id) = (self.monitor.clone(), self.senders.news.clone(), id.to_owned());
        self.executor
            .spawn(async move {
                smol::Timer::after(after).await;
                let result = monitor.delete(&id).await.map_err(|error| error.to_string());
                let _ = news.send(News::Deleted { id, result }).await;
            })
            .detach();
    }

    /// The OCI runtime has let go of a container: its folders may go too.
    pub(super) fn deleted(&mut self, id: &str, result: Result<(), String>) -> Result<(), StoreError> {
        // One that no pod here owns has nothing but its bundle.
        let stranger = || ContainerRef { uid: "-".into(), container: "-".into(), attempt: 0 };
        let owner = self.containers.get(id).cloned().unwrap_or_else(stranger);
        match result.and_then(|()| self.launcher.remove_container(&owner.uid, &owner.container, owner.attempt, id)) {
            Ok(()) => {
                self.containers.remove(id);
                self.unremoved.remove(id);
                self.tell(&owner.uid, PodEvent::Removed { container: owner.container, attempt: owner.attempt });
            }
            Err(error) => {
                let failures = self.unremoved.entry(id.to_owned()).or_default();
                let pause = pause_after(*failures);
                *failures = failures.saturating_add(1);
                log::warn!("container {id} cannot be removed yet, again in {} s: {error}", pause.as_secs());
                self.delete_container(id, pause);
            }
        }
        Ok(())
    }

    /// Containers first, at the monitor, then the rest: an answer at once only if there are none.
    pub(super) fn teardown(&mut self, uid: &str) -> Option<PodEvent> {
        self.probes.sync(uid, &[]);
        let ids = self.ids_of(uid);
        if ids.is_empty() {
            return self.take_down(uid);
        }
        let (monitor, news, uid) = (self.monitor.clone(), self.senders.news.clone(), uid.to_owned());
        self.executor
            .spawn(async move {
                let mut result = Ok(());
                for id in ids {
                    if let Err(error) = monitor.delete(&id).await {
                        // Nothing of a pod that goes runs on, whatever is recorded of it.
                        let _ = monitor.kill(&id, Signal::SIGKILL as i32).await;
                        result = result.and(Err(format!("container {id}: {error}")));
                    }
                }
                let _ = news.send(News::Cleared { uid, result }).await;
            })
            .detach();
        None
    }

    pub(super) fn cleared(&mut self, uid: &str, result: Result<(), String>) -> Result<(), StoreError> {
        let answer = match result {
            Ok(()) => self.take_down(uid),
            Err(message) => Some(PodEvent::TeardownFailed { message }),
        };
        if let Some(answer) = answer {
            self.tell(uid, answer);
        }
        Ok(())
    }

    fn take_down(&mut self, uid: &str) -> Option<PodEvent> {
        let failed = |message| Some(PodEvent::TeardownFailed { message });
        for id in self.ids_of(uid) {
            let Some(owner) = self.containers.get(&id) else { continue };
            if let Err(message) = self.launcher.remove_container(uid, &owner.container, owner.attempt, &id) {
                return failed(message);
            }
            self.containers.remove(&id);
        }
        self.disconnect(uid)
    }

    /// Starts the helper that deletes what is too large to be deleted here; it ends by itself.
    pub(super) fn sweep_trash(&self) {
        if !self.launcher.trash.take_waiting() {
            return;
        }
        let mut helper = smol::process::Command::from(program::itself("sweep"));
        helper.arg("--root").arg(self.paths.root());
        helper.stdin(Stdio::null()).stdout(Stdio::null());
        if let Err(error) = helper.spawn() {
            log::warn!("{} stays until the next sweep: {error}", self.paths.trash().display());
        }
    }

    fn ids_of(&self, uid: &str) -> Vec<String> {
        self.containers.iter().filter(|(_, owner)| owner.uid == uid).map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn forget(&mut self, uid: &str) {
        let Some(entry) = self.pods.remove(uid) else { return };
        self.containers.retain(|_, owner| owner.uid != uid);
        self.forget_tokens(uid);
        self.resync.forget(uid);
        // Ends that no turn of it has taken are nobody's now.
        self.turn_committed(uid);
        self.pods.touch_pending_resizes();
        let record = entry.record;
        if record.source == PodSource::Static {
            // An edited manifest waits for the pod it replaces.
            let _ = self.senders.news.try_send(News::ManifestsChanged);
        }
        log::info!("pod {}/{} is gone", record.namespace, record.name);
        let logs = self.paths.pod_logs(&record.namespace, &record.name, &record.uid);
        if let Err(error) = crate::sys::files::remove_tree(&logs) {
            log::warn!("logs stay: {error}");
        }
    }

    pub(super) fn warn_about_pod(&mut self, uid: &str, reason: &'static str, message: String) {
        let draft = EventDraft::pod(true, reason, message);
        if let Err(error) = self.pod_event(uid, &draft) {
            log::error!("{error}");
        }
    }

    pub(super) fn warn_about_container(
        &mut self,
        uid: &str,
        container: &str,
        reason: &'static str,
        message: String,
    ) -> Result<(), StoreError> {
        let kind =
            self.pods.get(uid).and_then(|entry| entry.record.containers.get(container)).map(|record| record.kind);
        let kind = kind.unwrap_or(ContainerKind::App);
        self.pod_event(uid, &EventDraft::container(true, reason, message, kind, container))
    }

    pub(super) fn pod_event(&mut self, uid: &str, draft: &EventDraft) -> Result<(), StoreError> {
        let Some(entry) = self.pods.get(uid) else { return Ok(()) };
        let now = self.clock.now();
        let event =
            super::events::about_pod(&entry.record, entry.mirror_uid.as_deref(), draft, &self.config.node_name, &now);
        self.queue_event(event)
    }

    pub(super) fn node_event(&mut self, warning: bool, reason: &str, message: &str) -> Result<(), StoreError> {
        let event = super::events::about_node(&self.config.node_name, warning, reason, message, &self.clock.now());
        self.queue_event(event)
    }

    /// Stores an event and has it sent, unless there were too many of its kind.
    pub(super) fn queue_event(&mut self, event: serde_json::Value) -> Result<(), StoreError> {
        let Some(event) = self.correlated(event) else { return Ok(()) };
        let (report, dropped) = (Report::Event { event }, self.correlator.dropped());
        let id = self.store.write(|writer| {
            dropped.iter().try_for_each(|row| writer.acknowledged(*row))?;
            writer.report(&report)
        })?;
        self.queue_reports(vec![(id, report)]);
        Ok(())
    }

    /// The event as it is to be stored together with `series.dropped()`; `None` if there were too many.
    pub(super) fn correlated(&mut self, event: serde_json::Value) -> Option<serde_json::Value> {
        let (now, offline) = (self.mono(), !self.outgoing.is_connected());
        let store = &self.store;
        self.correlator.take(event, now, offline, |row| match store.outbox_row(row) {
            Ok(Some(Report::Event { event })) => Some(event),
            _ => None,
        })
    }

    /// Reports just committed under these numbers.
    pub(super) fn queue_reports(&mut self, reports: Vec<(u64, Report)>) {
        if !self.outgoing.is_connected() {
            for (row, report) in &reports {
                if let Report::Event { event } = report {
                    self.correlator.stored(event, *row);
                }
            }
        }
        self.outgoing.queue(reports.into_iter());
    }

    /// What the wall clock says now: to be shown only, since it may jump.
    pub(super) fn wall(&self) -> Timestamp {
        self.clock.now().wall
    }
}
