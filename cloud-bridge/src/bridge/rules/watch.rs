//! The watch of rules as others have it: one for all, while a node wants to know or the listener for rules is open. What it knows
//! is `known`'s; how it comes to know is `follow`'s.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use apimachinery::panics;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::follow::follow;
use super::index::Route;
use super::known::{Known, lock};
use super::tally::Tally;
use super::write::write;
use crate::bridge::clients::Clients;
use crate::bridge::devices::known::View;

/// A watch that goes on as long as somebody holds it.
pub(in crate::bridge) struct RuleWatch {
    /// The newest round of readings that somebody wants; what is told may be no older.
    wanted: watch::Sender<u64>,
    known: Arc<Mutex<Known>>,
    tally: Arc<Mutex<Tally>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for RuleWatch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The one under way, if there is one.
#[derive(Default)]
pub(in crate::bridge) struct RuleWatches(Mutex<Weak<RuleWatch>>);

impl RuleWatches {
    /// The present watch, or a new one, which is to read everything in this round or later.
    pub(in crate::bridge) fn get(&self, clients: &Clients, round: u64) -> Arc<RuleWatch> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = present.upgrade() {
            found.wanted.send_if_modified(|wanted| std::mem::replace(wanted, round.max(*wanted)) < round);
            return found;
        }
        let made = Arc::new(RuleWatch::begin(clients, round));
        *present = Arc::downgrade(&made);
        made
    }

    /// The present one.
    pub(in crate::bridge) fn present(&self) -> Option<Arc<RuleWatch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

impl RuleWatch {
    fn begin(clients: &Clients, round: u64) -> Self {
        let (wanted, rounds) = watch::channel(round);
        let (known, tally): (Arc<Mutex<Known>>, Arc<Mutex<Tally>>) = Default::default();
        let (client, all) = (clients.own().clone(), Arc::clone(&known));
        let task = tokio::spawn(async move {
            panics::keep("the watch of rules", move || follow(client.clone(), Arc::clone(&all), rounds.clone())).await;
        });
        let (client, all, counted) = (clients.own().clone(), Arc::clone(&known), Arc::clone(&tally));
        let writing = tokio::spawn(async move {
            let write = move || write(client.clone(), Arc::clone(&all), Arc::clone(&counted));
            panics::keep("statuses of rules", write).await;
        });
        Self { wanted, known, tally, tasks: [task, writing] }
    }

    /// What a node should hold, from now on.
    pub(in crate::bridge) fn of_node(&self, node: &str) -> watch::Receiver<View> {
        lock(&self.known).subscribe(node)
    }

    /// The rule of this uid, if it works; the second is false before all of them have been read.
    pub(in crate::bridge) fn route(&self, uid: &str) -> (Option<Arc<Route>>, bool) {
        let known = lock(&self.known);
        (known.index.route(uid), known.round.is_some())
    }

    /// The rule for a path after node and namespace, and the rest of the path; an error before all have been read.
    pub(super) fn at_path(&self, namespace: &str, path: &str) -> Result<Option<(Arc<Route>, String)>, ()> {
        let known = lock(&self.known);
        if known.round.is_none() {
            return Err(());
        }
        Ok(known.index.at_path(namespace, path))
    }

    /// What came of something that a rule carried; an error is for people.
    pub(in crate::bridge) fn count(&self, route: &Route, outcome: Result<(), String>) {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).count(&route.name, &route.uid, outcome);
    }
}
