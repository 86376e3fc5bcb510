//! The daemon of a device: its state in memory, and how it receives pods. Touches no disk.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::rc::Rc;

use edge_protocol::edge::{Change, EdgeSession};
use k8s_openapi::api::core::v1::Pod;
use sampan_pod::clock::{Mono, Now};
use sampan_pod::event::PodEvent;
use sampan_pod::record::{PodRecord, PodSource};
use sampan_pod::transition;
use serde_json::Value;

pub(super) struct Entry {
    pub(super) pod: Rc<Pod>,
    pub(super) record: PodRecord,
    pub(super) reported: Value,
    pub(super) wake: Option<Mono>,
    pub(super) dirty: bool,
    pub(super) unsaved: bool,
}

/// The process. Its state is lost when it dies.
#[derive(Default)]
pub struct Daemon {
    pub session: Option<EdgeSession>,
    /// Changes that were received and not committed.
    pub inbox: VecDeque<Change>,
    /// Numbers committed on this connection.
    pub committed: HashSet<u64>,
    pub(super) pods: BTreeMap<String, Entry>,
}

impl Entry {
    pub(super) fn new(pod: Rc<Pod>, record: PodRecord) -> Self {
        Self { pod, record, reported: Value::Null, wake: None, dirty: true, unsaved: true }
    }

    pub(super) fn tell(&mut self, event: PodEvent, now: &Now) {
        self.record = transition::apply(self.record.clone(), event, now);
        (self.dirty, self.unsaved) = (true, true);
    }
}

impl Daemon {
    /// Same as `Node::pod_wanted`.
    pub(super) fn wanted(&mut self, pod: Pod, now: &Now) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let deleting = pod.metadata.deletion_timestamp.is_some();
        let pod = Rc::new(pod);
        if let Some(entry) = self.pods.get_mut(&uid) {
            (entry.pod, entry.dirty) = (pod, true);
        } else {
            let before = self.pods.values_mut().find(|entry| entry.record.name == name);
            before.into_iter().for_each(|entry| entry.tell(PodEvent::ObjectGone { grace_s: 5 }, now));
            let record = PodRecord::new(&uid, "ns", &name, PodSource::Api, now);
            self.pods.insert(uid.clone(), Entry::new(pod, record));
        }
        if let Some(entry) = self.pods.get_mut(&uid).filter(|_| deleting) {
            entry.tell(PodEvent::DeletionRequested { grace_s: 5 }, now);
        }
    }

    pub(super) fn gone(&mut self, uid: &str, now: &Now) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.tell(PodEvent::ObjectGone { grace_s: 5 }, now);
        }
    }
}
