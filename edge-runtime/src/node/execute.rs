//! What the steps of a pod do that concern its containers, and its end: thin calls into launch and the monitor.

use std::borrow::Cow;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::Node;
use super::containers::ContainerRef;
use super::sources::News;
use crate::launch::Attempt;
use crate::launch::container::Ready;
use crate::launch::error::ContainerError;
use crate::pod::admission;
use crate::pod::ephemeral;
use crate::pod::event::PodEvent;
use crate::pod::pause::{PAUSE, shares_processes};
use crate::pod::record::{ContainerState, PodSource};
use crate::pod::support::container_refusal;
use crate::sys::program;
use crate::sys::trash::Trash;
use sampan_monitor::protocol::StartContainer;

impl Node {
    /// Starts a container. The result of the start arrives as news; the pause container, and one that waits for devices of a
    /// plugin, has no answer before that.
    pub(super) fn start_container(
        &mut self,
        pod: &Pod,
        of: ContainerRef,
        id: &str,
        image_id: &str,
    ) -> Option<PodEvent> {
        if of.container != PAUSE && self.waits_for_devices(pod, &of, id, image_id) {
            return None;
        }
        self.start_prepared(pod, of, id, image_id)
    }

    /// The same for a container that has its devices.
    pub(super) fn start_prepared(&mut self, pod: &Pod, of: ContainerRef, id: &str, image_id: &str) -> Option<PodEvent> {
        let (container, id) = (of.container.clone(), id.to_owned());
        let looks = self.launch.sandboxes.looks.clone();
        if container == PAUSE {
            return match self.prepare_pause(pod, of.attempt, &id) {
                Ok(start) => {
                    self.containers.start(&self.cx, of, start, (looks, Vec::new()));
                    None
                }
                Err(error) => Some(failed(container, id, &error)),
            };
        }
        Some(match self.prepare_container(pod, &of, &id, image_id) {
            Ok(ready) => {
                for (reason, message) in ready.warnings {
                    self.cx.warn_about_pod(&of.uid, reason, message);
                }
                self.ephemeral_storage.changed();
                self.drop_old_logs(&of);
                self.containers.start(&self.cx, of, ready.start, (looks, ready.looks));
                PodEvent::Prepared { container, id, user: ready.user }
            }
            Err(error) => failed(container, id, &error),
        })
    }

    fn prepare_container(
        &mut self,
        pod: &Pod,
        of: &ContainerRef,
        id: &str,
        image_id: &str,
    ) -> Result<Ready, ContainerError> {
        let ContainerRef { uid, container, attempt } = of;
        let entry = self.cx.pods.get(uid);
        let pod = &*entry.map_or(Cow::Borrowed(pod), |entry| admission::allocated(pod, &entry.record));
        let definition = ephemeral::definition(pod, container)
            .ok_or_else(|| ContainerError::config(format!("container {container} is not in the pod's spec")))?;
        if let Some(message) = pod.spec.as_ref().and_then(|spec| container_refusal(spec, container)) {
            return Err(ContainerError::config(message));
        }
        let join_pid = self.pid_to_join(uid, pod, container).map_err(ContainerError::config)?;
        let image = self.cx.image_record(image_id, definition.image.as_deref().unwrap_or_default());
        let image =
            image.ok_or_else(|| ContainerError::create(format!("image {image_id} is no longer on this node")))?;
        let ips = entry.map(|entry| entry.record.ips.clone()).unwrap_or_default();
        let image_volumes = self.cx.volume_images(uid, pod, &definition).map_err(ContainerError::create)?;
        let is_static = entry.is_some_and(|entry| entry.record.source == PodSource::Static);
        let (container, number) = (&*definition, *attempt);
        let which = Attempt { container, number, id, is_static, join_pid, image_volumes: &image_volumes };
        let sandbox = self.launch.sandboxes.open(pod, &ips, &self.cx.objects());
        let sandbox = sandbox.map_err(ContainerError::create)?;
        self.launch.containers.prepare(&sandbox, pod, &which, &image, &self.cx.objects())
    }

    fn prepare_pause(&mut self, pod: &Pod, attempt: u32, id: &str) -> Result<StartContainer, ContainerError> {
        let objects = self.cx.objects();
        let sandbox = self.launch.sandboxes.open(pod, &[], &objects);
        let sandbox = sandbox.map_err(ContainerError::create)?;
        self.launch.containers.prepare_pause(&sandbox, pod, attempt, id, &objects)
    }

    /// Logs of attempts before the last one.
    fn drop_old_logs(&self, of: &ContainerRef) {
        let Some(entry) = self.cx.pods.get(&of.uid) else { return };
        let record = &entry.record;
        let folder = self.cx.paths.pod_logs(&record.namespace, &record.name, &record.uid).join(&of.container);
        crate::logs::drop_before(&folder, of.attempt.saturating_sub(1));
    }

    /// The process whose pid namespace a container shares.
    fn pid_to_join(&self, uid: &str, pod: &Pod, container: &str) -> Result<Option<i32>, String> {
        let shared = pod.spec.as_ref().is_some_and(shares_processes).then_some(PAUSE);
        let Some(target) = shared.or_else(|| ephemeral::target(pod, container)) else { return Ok(None) };
        let record = self.cx.pods.get(uid).and_then(|entry| entry.record.containers.get(target));
        match record.map(|record| &record.state) {
            // The first process of a namespace takes all others with it: they end before it does.
            Some(ContainerState::Running { pid, .. }) if crate::sys::host::is_alive(*pid) => Ok(Some(*pid)),
            _ => Err(format!("unable to find target container {target}")),
        }
    }

    pub(super) fn remove_container(&mut self, of: ContainerRef, id: &str) {
        self.containers.insert(id, of);
        self.containers.delete(&self.cx, id, Duration::ZERO);
    }

    /// The OCI runtime has let go of a container: its folders may go too.
    pub(super) fn deleted(&mut self, id: &str, result: Result<(), String>) {
        // A container without a pod here has only its bundle.
        let stranger = || ContainerRef { uid: "-".into(), container: "-".into(), attempt: 0 };
        let of = self.containers.get(id).cloned().unwrap_or_else(stranger);
        let remove = || self.launch.containers.remove(&of.uid, &of.container, of.attempt, id);
        match result.and_then(|()| remove().map_err(|error| error.to_string())) {
            Ok(()) => {
                self.containers.remove(id);
                self.cx.tell(&of.uid, PodEvent::Removed { container: of.container, attempt: of.attempt });
            }
            Err(error) => self.containers.delete_later(&self.cx, id, &error),
        }
    }

    /// Stops containers first, at the monitor, then removes the rest. Answers at once only for a pod without
    /// containers.
    pub(super) fn teardown(&mut self, uid: &str) -> Option<PodEvent> {
        self.probes.stop(uid);
        let ids = self.containers.ids_of(uid);
        if ids.is_empty() {
            return self.take_down(uid);
        }
        self.containers.clear(&self.cx, uid, ids);
        None
    }

    pub(super) fn cleared(&mut self, uid: &str, result: Result<(), String>) {
        let answer = match result {
            Ok(()) => self.take_down(uid),
            Err(message) => Some(PodEvent::TeardownFailed { message }),
        };
        if let Some(answer) = answer {
            self.cx.tell(uid, answer);
        }
    }

    fn take_down(&mut self, uid: &str) -> Option<PodEvent> {
        for id in self.containers.ids_of(uid) {
            let Some(of) = self.containers.get(&id) else { continue };
            if let Err(error) = self.launch.containers.remove(uid, &of.container, of.attempt, &id) {
                return Some(PodEvent::TeardownFailed { message: error.to_string() });
            }
            self.containers.remove(&id);
        }
        self.disconnect(uid)
    }

    /// Starts the helper that deletes folders too large for this thread; it ends when it is done.
    pub(super) fn sweep_trash(&self) {
        let waiting = [&self.launch.base.trash, &self.launch.base.volumes_trash].map(Trash::take_waiting);
        if !waiting.contains(&true) {
            return;
        }
        let mut helper = smol::process::Command::from(program::itself("sweep"));
        helper.arg("--root").arg(self.cx.paths.root());
        helper.stdin(Stdio::null()).stdout(Stdio::null());
        if let Err(error) = helper.spawn() {
            log::warn!("what pods left stays until the next sweep: {error}");
        }
    }

    pub(super) fn forget(&mut self, uid: &str) {
        let Some(entry) = self.cx.pods.remove(uid) else { return };
        self.containers.forget(uid);
        self.launch.containers.cpus.free(uid);
        self.launch.containers.free_allocations(uid);
        self.plugins.forget(uid);
        self.plugins.volumes.forget(uid);
        self.tokens.forget(uid);
        self.resync.forget(uid);
        // Exits that no turn of the pod has handled are dropped now.
        self.exit_sync.turn_committed(uid, self.cx.mono());
        self.cx.pods.touch_pending_resizes();
        let record = entry.record;
        if record.source == PodSource::Static {
            self.static_pods.forgotten(uid);
            // An edited manifest waits for the pod it replaces.
            let _ = self.cx.senders.news.try_send(News::ManifestsChanged);
        }
        log::info!("pod {}/{} is gone", record.namespace, record.name);
        let logs = self.cx.paths.pod_logs(&record.namespace, &record.name, &record.uid);
        match crate::sys::files::remove_tree(&logs) {
            Ok(()) => {
                // A held pod may have gone before its release.
                let _ = std::fs::remove_file(self.cx.paths.released(uid));
                // Empty since the teardown; it showed that the logs are this node's.
                let _ = std::fs::remove_dir(self.cx.paths.pod(uid));
            }
            Err(error) => log::warn!("logs stay: {error}"),
        }
    }
}

fn failed(container: String, id: String, error: &ContainerError) -> PodEvent {
    PodEvent::StartFailed { container, id, failure: error.failure, message: error.to_string() }
}

#[cfg(test)]
mod tests;
