//! Volumes of CSI drivers: what pods have, and the orders to the helper that mount and unmount them. Which step of a pod
//! waits for them is in `network/volumes.rs`.

mod kept;
mod orders;

use std::time::Duration;

use serde_json::Value;

use self::kept::AllKept;
use crate::paths::Paths;
use crate::pod::clock::Mono;
use crate::volume::VolumeError;
use crate::volume::csi::CsiVolume;
use crate::volume::error::{SET_UP, TEAR_DOWN};

/// Pause before the order of a running pod is repeated, doubled up to the second value, as in the kubelet (K8s
/// pkg/util/goroutinemap/exponentialbackoff).
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(122));

/// What an order is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A pod that is prepared waits for it.
    Mount,
    /// The pod runs: the helper is another one, or the driver wants to publish again.
    Repeat,
    /// A pod that is taken down waits for it.
    Unmount,
    /// Its pod has gone: the volume stays in use until it is unmounted.
    Leave,
}

struct Order {
    /// Number of the order; none before it is sent.
    id: Option<u64>,
    uid: String,
    folder: String,
    what: What,
    /// The kubelet's name of the step.
    verb: &'static str,
    /// Not before.
    due: Mono,
    failures: u32,
}

#[derive(Default)]
pub(in crate::node) struct Volumes {
    pub(in crate::node) kept: AllKept,
    orders: Vec<Order>,
    /// The helper has said what it has: it takes orders.
    told: bool,
    /// It knows which pods there are.
    swept: bool,
    /// The last reported drivers.
    drivers: Option<Value>,
}

impl Volumes {
    /// Reads what pods have.
    pub(in crate::node) fn load(&mut self, paths: &Paths) {
        self.kept = AllKept::load(paths);
    }

    /// Orders to mount these volumes of a pod.
    pub(in crate::node) fn mount(&mut self, uid: &str, volumes: &[CsiVolume], now: Mono) {
        self.orders.retain(|order| order.uid != uid);
        volumes.iter().for_each(|volume| self.push(uid, &volume.folder, What::Mount, volume.verb(), now));
    }

    /// Orders to unmount all volumes of a pod.
    pub(in crate::node) fn unmount(&mut self, uid: &str, now: Mono) {
        self.orders.retain(|order| order.uid != uid);
        self.kept.folders(uid).iter().for_each(|folder| self.push(uid, folder, What::Unmount, TEAR_DOWN, now));
    }

    /// Orders to mount a volume of a running pod again.
    fn repeat(&mut self, uid: &str, folder: &str, now: Mono) {
        self.push(uid, folder, What::Repeat, SET_UP, now);
    }

    /// Orders to unmount the volumes of pods that are not among these.
    fn leave(&mut self, pods: &[String], now: Mono) {
        for uid in self.kept.uids() {
            if !pods.contains(&uid) {
                self.kept.folders(&uid).iter().for_each(|folder| self.push(&uid, folder, What::Leave, TEAR_DOWN, now));
            }
        }
    }

    fn push(&mut self, uid: &str, folder: &str, what: What, verb: &'static str, due: Mono) {
        let is_it = |order: &Order| order.uid == uid && order.folder == folder;
        if !self.orders.iter().any(is_it) {
            let (uid, folder) = (uid.to_owned(), folder.to_owned());
            self.orders.push(Order { id: None, uid, folder, what, verb, due, failures: 0 });
        }
    }

    /// The pod is gone.
    pub(in crate::node) fn forget(&mut self, uid: &str) {
        self.kept.forget(uid);
        self.orders.retain(|order| order.uid != uid);
    }

    /// The next order to send.
    fn next(&self, now: Mono) -> Option<usize> {
        self.orders.iter().position(|order| order.id.is_none() && order.due <= now)
    }

    /// When an order is due that waits for its time.
    pub(in crate::node) fn wake(&self, now: Mono) -> Option<Mono> {
        let waiting = self.orders.iter().filter(|order| self.told && order.id.is_none() && order.due > now);
        waiting.map(|order| order.due).min()
    }

    fn sent_as(&self, id: u64) -> Option<usize> {
        self.orders.iter().position(|order| order.id == Some(id))
    }

    fn take(&mut self, id: u64) -> Option<Order> {
        self.sent_as(id).map(|at| self.orders.swap_remove(at))
    }

    /// Whether another order of the same kind is open for the pod.
    fn has_more(&self, done: &Order) -> bool {
        self.orders.iter().any(|order| order.uid == done.uid && order.what == done.what)
    }
}

impl Order {
    fn failed(&self, problem: String) -> VolumeError {
        VolumeError::Csi { verb: self.verb, volume: self.folder.clone(), problem }
    }
}

#[cfg(test)]
mod tests;
