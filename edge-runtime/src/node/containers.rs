//! The containers of the monitor: the pod of each, and requests to the monitor about them. Its answers are news.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::context::Context;
use super::sources::News;
use crate::launch::look::Look;
use crate::launch::looking::{Looks, Trouble};
use crate::monitor::client::{ClientError, MonitorClient};
use crate::pod::backoff::pause_after;
use crate::pod::event::StartFailure;
use crate::pod::id::container_id;
use crate::pod::record::{PodRecord, StopReason};
use crate::pod::spec::containers_of;
use crate::pod::step::StopSignal;
use crate::pod::stop_signal;
use crate::sys::vec_map::VecMap;
use sampan_monitor::protocol::StartContainer;

/// Owner of a container id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerRef {
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) attempt: u32,
}

pub(super) struct Containers {
    pub(super) monitor: MonitorClient,
    /// Owners by container id.
    refs: VecMap<String, ContainerRef>,
    /// Ended containers that could not be removed, by id, and how often it was tried. Each waits for its next try.
    unremoved: VecMap<String, u32>,
}

impl Containers {
    pub(super) fn new(monitor: MonitorClient) -> Self {
        Self { monitor, refs: VecMap::new(), unremoved: VecMap::new() }
    }

    pub(super) fn get(&self, id: &str) -> Option<&ContainerRef> {
        self.refs.get(id)
    }

    pub(super) fn insert(&mut self, id: &str, of: ContainerRef) {
        self.refs.insert(id.to_owned(), of);
    }

    /// Those of a record, also of attempts that have ended.
    pub(super) fn insert_all(&mut self, record: &PodRecord) {
        let uid = &record.uid;
        for (name, container) in &record.containers {
            for attempt in container.garbage.keys().copied().chain([container.attempt]) {
                let id = container_id(uid, name, attempt);
                self.refs.insert(id, ContainerRef { uid: uid.clone(), container: name.clone(), attempt });
            }
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.refs.remove(id);
        self.unremoved.remove(id);
    }

    /// The pod is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.refs.retain(|_, of| of.uid != uid);
    }

    pub(super) fn ids_of(&self, uid: &str) -> Vec<String> {
        self.refs.iter().filter(|(_, of)| of.uid == uid).map(|(id, _)| id.clone()).collect()
    }

    /// Has the monitor start what is prepared, after a helper has seen to its foreign volumes.
    pub(super) fn start(
        &mut self,
        cx: &Context,
        of: ContainerRef,
        start: StartContainer,
        (helper, looks): (Looks, Vec<Look>),
    ) {
        let id = start.id.clone();
        self.refs.insert(id.clone(), of);
        let monitor = self.monitor.clone();
        cx.background(async move {
            if let Err(Trouble::Failed(message)) = helper.all(looks).await {
                return Some(News::StartRefused { id, failure: StartFailure::Config, message });
            }
            match monitor.start(start).await {
                // The next monitor's list tells whether the last one has started it.
                Ok(()) | Err(ClientError::Gone) => None,
                Err(error) => Some(News::StartRefused { id, failure: StartFailure::Run, message: error.to_string() }),
            }
        });
    }

    pub(super) fn kill(&self, cx: &Context, which: (&str, &str, &str), signal: StopSignal, because: StopReason) {
        let (uid, container, id) = which;
        let signal = match signal {
            StopSignal::Kill => Signal::SIGKILL as i32,
            StopSignal::Stop { .. } => stop_signal_of(cx, uid, container),
        };
        log::info!("container {container} ({}): signal {signal} because {because:?}", id.get(..12).unwrap_or(id));
        self.signal(cx, id, signal);
    }

    pub(super) fn signal(&self, cx: &Context, id: &str, signal: i32) {
        let (monitor, id) = (self.monitor.clone(), id.to_owned());
        let send = async move {
            if let Err(error) = monitor.kill(&id, signal).await {
                log::debug!("signal {signal} to container {id}: {error}");
            }
        };
        cx.tasks.spawn(send).detach();
    }

    /// Has the monitor forget an ended container.
    pub(super) fn delete(&self, cx: &Context, id: &str, after: Duration) {
        let (monitor, id) = (self.monitor.clone(), id.to_owned());
        cx.background(async move {
            smol::Timer::after(after).await;
            let result = monitor.delete(&id).await.map_err(|error| error.to_string());
            News::Deleted { id, result }
        });
    }

    /// It could not be removed: it is tried again, less and less often.
    pub(super) fn delete_later(&mut self, cx: &Context, id: &str, error: &str) {
        let failures = self.unremoved.get_or_default(id.to_owned());
        let pause = pause_after(*failures);
        *failures = failures.saturating_add(1);
        log::warn!("container {id} cannot be removed yet, again in {} s: {error}", pause.as_secs());
        self.delete(cx, id, pause);
    }

    /// Tells the monitor to forget all containers of a deleted pod.
    pub(super) fn clear(&self, cx: &Context, uid: &str, ids: Vec<String>) {
        let (monitor, uid) = (self.monitor.clone(), uid.to_owned());
        cx.background(async move {
            let mut result = Ok(());
            for id in ids {
                if let Err(error) = monitor.delete(&id).await {
                    // No process of a deleted pod may continue, whatever its record says.
                    let _ = monitor.kill(&id, Signal::SIGKILL as i32).await;
                    result = result.and(Err(format!("container {id}: {error}")));
                }
            }
            News::Cleared { uid, result }
        });
    }
}

/// `lifecycle.stopSignal`, else the image's STOPSIGNAL, else SIGTERM.
fn stop_signal_of(cx: &Context, uid: &str, container: &str) -> i32 {
    let entry = cx.pods.get(uid);
    let definition = entry.and_then(|entry| containers_of(&entry.pod).find(|one| one.name == container));
    let own = definition.and_then(|one| stop_signal::number(one.lifecycle.as_ref()?.stop_signal.as_deref()?));
    let of_image = || {
        let record = entry?.record.containers.get(container)?;
        stop_signal::number(&cx.image_record(&record.image_id, &record.image)?.config.stop_signal?)
    };
    own.or_else(of_image).unwrap_or(Signal::SIGTERM as i32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use serde_json::json;

    use super::*;
    use crate::node::pods::Entry;
    use crate::pod::record::{ContainerKind, ContainerRecord};
    use crate::store::image_record::{ImageConfig, ImageRecord};

    #[test]
    fn stop_signal_is_the_containers_then_the_images_then_sigterm() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let image = ImageRecord {
            id: "sha256:a".to_owned(),
            references: Vec::new(),
            config: ImageConfig { stop_signal: Some("SIGQUIT".to_owned()), ..ImageConfig::default() },
            layers: Vec::new(),
            size: 0,
            pulled_at: 0,
            access: Default::default(),
        };
        cx.store.write(|writer| writer.image_put(&image)).unwrap();
        let containers = json!([
            {"name": "own", "lifecycle": {"stopSignal": "SIGUSR1"}},
            {"name": "unknown", "lifecycle": {"stopSignal": "SIGNOTHING"}},
            {"name": "image"},
            {"name": "plain"},
        ]);
        let pod = serde_json::from_value(json!({"spec": {"containers": containers}})).unwrap();
        let mut record = PodRecord { uid: "u".to_owned(), ..PodRecord::default() };
        for name in ["own", "image"] {
            let mut container = ContainerRecord::new(ContainerKind::App);
            container.image_id = "sha256:a".to_owned();
            record.containers.insert(name.to_owned(), container);
        }
        cx.pods.insert(Entry::new(Rc::new(pod), record));
        let signals = ["own", "unknown", "image", "plain"].map(|name| stop_signal_of(&cx, "u", name));
        let expected = [Signal::SIGUSR1, Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGTERM];
        assert_eq!(signals, expected.map(|signal| signal as i32));
        assert_eq!(stop_signal_of(&cx, "gone", "own"), Signal::SIGTERM as i32);
    }

    #[test]
    fn ended_attempts_are_of_their_pod_until_it_is_forgotten() {
        let mut containers = Containers::new(MonitorClient::for_tests());
        for uid in ["a", "b"] {
            let mut record = PodRecord { uid: uid.to_owned(), ..PodRecord::default() };
            let mut container = ContainerRecord::new(ContainerKind::App);
            container.attempt = 2;
            container.garbage = BTreeMap::from([(0, true), (1, false)]);
            record.containers.insert("c".to_owned(), container);
            containers.insert_all(&record);
        }
        for attempt in 0..3 {
            let expected = ContainerRef { uid: "a".to_owned(), container: "c".to_owned(), attempt };
            assert_eq!(containers.get(&container_id("a", "c", attempt)), Some(&expected));
        }
        containers.forget("a");
        assert_eq!((containers.ids_of("a").len(), containers.ids_of("b").len()), (0, 3));
    }

    #[test]
    fn removal_that_fails_is_counted_until_it_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(folder.path());
        let mut containers = Containers::new(MonitorClient::for_tests());
        for failures in 1..=2 {
            containers.delete_later(&cx, "id", "busy");
            assert_eq!(containers.unremoved.get("id"), Some(&failures));
        }
        containers.remove("id");
        assert_eq!(containers.unremoved.get("id"), None);
    }
}
