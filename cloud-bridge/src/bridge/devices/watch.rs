//! The watch of Devices as others have it: one for all nodes, while one of them wants to know. What it knows is `known`'s; how
//! it comes to know is `follow`'s.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use apimachinery::panics;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::events::{Takes, tell};
use super::follow::follow;
use super::known::{Known, View, lock};
use super::served::Served;
use super::view::{Device, Name};
use crate::bridge::clients::Clients;

/// A watch that goes on as long as somebody holds it.
pub(in crate::bridge) struct DeviceWatch {
    /// The newest round of readings that somebody wants; what is told may be no older.
    wanted: watch::Sender<u64>,
    known: Arc<Mutex<Known>>,
    look_again: Arc<Notify>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The one under way, if there is one.
#[derive(Default)]
pub(in crate::bridge) struct DeviceWatches(Mutex<Weak<DeviceWatch>>);

impl DeviceWatches {
    /// The present watch, or a new one, which is to read everything in this round or later.
    pub(in crate::bridge) fn get(&self, clients: &Clients, takes: &Arc<Takes>, round: u64) -> Arc<DeviceWatch> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = present.upgrade() {
            found.wanted.send_if_modified(|wanted| std::mem::replace(wanted, round.max(*wanted)) < round);
            return found;
        }
        let made = Arc::new(DeviceWatch::begin(clients, Arc::clone(takes), round));
        *present = Arc::downgrade(&made);
        made
    }

    /// The present one.
    pub(in crate::bridge) fn present(&self) -> Option<Arc<DeviceWatch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

impl DeviceWatch {
    fn begin(clients: &Clients, takes: Arc<Takes>, round: u64) -> Self {
        let (wanted, rounds) = watch::channel(round);
        let known: Arc<Mutex<Known>> = Arc::default();
        let look_again = Arc::new(Notify::new());
        let (client, all, again) = (clients.own().clone(), Arc::clone(&known), Arc::clone(&look_again));
        let task = tokio::spawn(async move {
            panics::keep("the watch of Devices", move || {
                follow(client.clone(), Arc::clone(&all), Arc::clone(&again), rounds.clone())
            })
            .await;
        });
        let (clients, of) = (clients.clone(), Arc::clone(&known));
        let events = tokio::spawn(async move {
            panics::keep("events about Devices", move || tell(clients.clone(), Arc::clone(&takes), Arc::clone(&of)))
                .await;
        });
        Self { wanted, known, look_again, tasks: [task, events] }
    }

    /// What a node should hold, from now on.
    pub(in crate::bridge) fn of_node(&self, node: &str) -> watch::Receiver<View> {
        lock(&self.known).subscribe(node)
    }

    /// A Device; the second is false before all of them have been read.
    pub(super) fn device(&self, name: &Name) -> (Option<Device>, bool) {
        let known = lock(&self.known);
        (known.index.device(name).cloned(), known.round.is_some())
    }

    pub(super) fn served(&self) -> Served {
        lock(&self.known).served
    }

    /// The API has been seen to serve something else than [`served`](Self::served).
    pub(super) fn look_again(&self) {
        self.look_again.notify_one();
    }
}
