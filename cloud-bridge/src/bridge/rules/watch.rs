//! The watch of rules: one for all, while a node takes them or the listener for rules is running.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apimachinery::panics;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::index::Index;
use super::route::Route;
use super::tally::Tally;
use super::write::write;
use crate::bridge::clients::Clients;
use crate::bridge::discovery::has;
use crate::bridge::followed::follow::{LOOK, Look, follow};
use crate::bridge::followed::known::{Known, View, lock};
use crate::bridge::followed::present::Rounds;
use crate::bridge::world::Round;

/// Requests no early checks.
struct Looks;

impl Look for Looks {
    fn serves(&self, resources: &Value) -> bool {
        has(resources, "rules") && has(resources, "ruleendpoints")
    }

    fn patience(&self) -> Duration {
        LOOK
    }

    fn asked(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// A watch that runs as long as a task holds it.
pub(in crate::bridge) struct RuleWatch {
    /// The newest round of readings that a node needs; older answers are not sent.
    wanted: watch::Sender<Round>,
    known: Arc<Mutex<Known<Index>>>,
    tally: Arc<Mutex<Tally>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for RuleWatch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Rounds for RuleWatch {
    fn wanted(&self) -> &watch::Sender<Round> {
        &self.wanted
    }
}

impl RuleWatch {
    /// Reads everything in this round or later.
    pub(in crate::bridge) fn begin(clients: &Clients, round: Round) -> Self {
        let (wanted, rounds) = watch::channel(round);
        let (known, tally): (Arc<Mutex<Known<Index>>>, Arc<Mutex<Tally>>) = Default::default();
        let (client, all) = (clients.own().clone(), Arc::clone(&known));
        let task = tokio::spawn(async move {
            panics::keep("the watch of rules", move || {
                follow(client.clone(), Arc::clone(&all), Arc::new(Looks), rounds.clone())
            })
            .await;
        });
        let (client, all, counted) = (clients.own().clone(), Arc::clone(&known), Arc::clone(&tally));
        let writing = tokio::spawn(async move {
            let write = move || write(client.clone(), Arc::clone(&all), Arc::clone(&counted));
            panics::keep("statuses of rules", write).await;
        });
        Self { wanted, known, tally, tasks: [task, writing] }
    }

    /// What a node should hold, now and after each change.
    pub(in crate::bridge) fn of_node(&self, node: &str) -> watch::Receiver<View> {
        lock(&self.known).subscribe(node)
    }

    /// The rule of this uid, if it is valid; the second value is false before all rules have been read.
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

    /// Counts the result of a request or message; an error is for users.
    pub(in crate::bridge) fn count(&self, route: &Route, outcome: Result<(), String>) {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).count(&route.name, &route.uid, outcome);
    }
}
