//! Fleet jobs (operations.kubeedge.io): upgrades, images and configuration for many nodes, with the concurrency of the
//! job.
//!
//! The state of a job is only in its status. Every write is made on the version that was read, so any bridge may write:
//! a node gets its order only after the API has stored that it was given, and gets no other.
//!
//! | module | owns |
//! |---|---|
//! | `view` | pure: jobs as they are written |
//! | `order` | pure: from a job to the order of its nodes |
//! | `status` | pure: a job's status, in words and within limits |
//! | `plan` | pure: the next step of a job |
//! | `said` | pure: which parts of a node's answer are accepted |
//! | `index` | pure: which node should hold which orders |
//! | `known` | this bridge's state of all jobs, and answers that are not written yet |
//! | `reading` | pure: from events of the watches to changes |
//! | `follow` | the watches that feed it |
//! | `nodes`, `exceptions` | target nodes of a job, and which are connected or held |
//! | `silence` | pure: how long nothing has changed at a working node |
//! | `write` | pure: when a status is written, and what follows from a failure |
//! | `work` | one job until it ends: joins all of these and writes |
//! | `tasks` | a task for each job |
//! | `secret` | credentials of nodes to pull images |
//! | `leader` | which of several bridges begins jobs and judges nodes |
//! | `events` | events for users |
//!
//! Knows no session and no socket.

mod events;
mod exceptions;
mod follow;
mod index;
pub(super) mod known;
mod leader;
mod nodes;
mod order;
mod plan;
mod reading;
mod said;
mod secret;
mod silence;
mod status;
mod tasks;
mod view;
mod work;
mod write;

use std::sync::{Arc, Weak};

use apimachinery::panics;
use ring::rand::{SecureRandom, SystemRandom};

use super::shared::Shared;
use crate::pki::encoding::hex;

/// Follows jobs and executes them until the bridge ends.
pub(super) fn start(shared: &Arc<Shared>) {
    let mut bytes = [0; 8];
    let named = SystemRandom::new().fill(&mut bytes);
    // Without randomness TLS does not work either, so no node will connect.
    let id = format!("bridge-{}", if named.is_ok() { hex(&bytes) } else { std::process::id().to_string() });
    let (client, jobs) = (shared.clients.own().clone(), Arc::downgrade(&shared.jobs));
    tokio::spawn(panics::keep("the watch of jobs", move || follow::follow(client.clone(), Weak::clone(&jobs))));
    let weak = Arc::downgrade(shared);
    tokio::spawn(panics::keep("jobs", move || tasks::run(Weak::clone(&weak), id.clone())));
}
