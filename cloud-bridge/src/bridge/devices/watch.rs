//! The watch of Devices: one for all nodes, while one of them takes Devices.

use std::sync::{Arc, Mutex};

use apimachinery::panics;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::events::{Takes, tell};
use super::index::Index;
use super::served::{Looks, Served};
use super::view::Device;
use crate::bridge::clients::Clients;
use crate::bridge::followed::follow::follow;
use crate::bridge::followed::known::{Known, View, lock};
use crate::bridge::followed::present::Rounds;
use crate::bridge::name::Name;
use crate::bridge::world::Round;

/// A watch that runs as long as a task holds it.
pub(in crate::bridge) struct DeviceWatch {
    /// The newest round of readings that a node needs; older answers are not sent.
    wanted: watch::Sender<Round>,
    known: Arc<Mutex<Known<Index>>>,
    looks: Arc<Looks>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Rounds for DeviceWatch {
    fn wanted(&self) -> &watch::Sender<Round> {
        &self.wanted
    }
}

impl DeviceWatch {
    /// Reads everything in this round or later.
    pub(in crate::bridge) fn begin(clients: &Clients, takes: Arc<Takes>, round: Round) -> Self {
        let (wanted, rounds) = watch::channel(round);
        let (known, looks): (Arc<Mutex<Known<Index>>>, Arc<Looks>) = Default::default();
        let (client, all, look) = (clients.own().clone(), Arc::clone(&known), Arc::clone(&looks));
        let task = tokio::spawn(async move {
            panics::keep("the watch of Devices", move || {
                follow(client.clone(), Arc::clone(&all), Arc::clone(&look), rounds.clone())
            })
            .await;
        });
        let (clients, of) = (clients.clone(), Arc::clone(&known));
        let events = tokio::spawn(async move {
            panics::keep("events about Devices", move || tell(clients.clone(), Arc::clone(&takes), Arc::clone(&of)))
                .await;
        });
        Self { wanted, known, looks, tasks: [task, events] }
    }

    /// What a node should hold, now and after each change.
    pub(in crate::bridge) fn of_node(&self, node: &str) -> watch::Receiver<View> {
        lock(&self.known).subscribe(node)
    }

    /// Returns a Device; the second value is false before all Devices have been read.
    pub(super) fn device(&self, name: &Name) -> (Option<Device>, bool) {
        let known = lock(&self.known);
        (known.index.device(name).cloned(), known.round.is_some())
    }

    pub(super) fn served(&self) -> Served {
        self.looks.served()
    }

    /// Requests a new check of what the API serves, because an answer contradicts [`served`](Self::served).
    pub(super) fn look_again(&self) {
        self.looks.again();
    }
}
