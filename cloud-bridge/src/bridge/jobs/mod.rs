//! Fleet jobs (operations.kubeedge.io): upgrades, images and configuration for many nodes, one after the other as a job says.
//!
//! What is known of a job lives in its status alone. Every write of it is made on the version that was read, so it does not matter
//! which bridge writes: a node is told of its order only after the API has kept that it was given, and never of another.
//!
//! | module | owns |
//! |---|---|
//! | `view` | pure: jobs as they are written |
//! | `order` | pure: from a job to what its nodes are told |
//! | `status` | pure: a job's status, in words and within bounds |
//! | `plan` | pure: the next step of a job |
//! | `said` | pure: what of a node's answer is taken |
//! | `index` | pure: which node is to hold which orders |
//! | `known` | what this bridge knows of all jobs, and what waits to be written |
//! | `follow` | the watch that feeds it |
//! | `nodes`, `exceptions` | which nodes a job means, and which are connected or held |
//! | `silence` | pure: how long nothing has changed with a node at work |
//! | `work` | one job until it ends: joins all of these and writes |
//! | `secret` | what nodes need to pull images |
//! | `leader` | which of several bridges begins jobs and judges nodes |
//! | `events` | tells people |
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
mod said;
mod secret;
mod silence;
mod status;
mod view;
mod work;

use std::sync::{Arc, Weak};

use apimachinery::panics;
use ring::rand::{SecureRandom, SystemRandom};

use super::shared::Shared;
use crate::pki::authority::hex;

pub(super) use known::Jobs;

/// Follows jobs and works on them until the bridge is gone.
pub(super) fn start(shared: &Arc<Shared>) {
    let mut bytes = [0; 8];
    let named = SystemRandom::new().fill(&mut bytes);
    // Without randomness TLS does not work either: no node will be connected.
    let id = format!("bridge-{}", if named.is_ok() { hex(&bytes) } else { std::process::id().to_string() });
    let weak = Arc::downgrade(shared);
    tokio::spawn(panics::keep("the watch of jobs", move || follow::follow(Weak::clone(&weak))));
    let weak = Arc::downgrade(shared);
    tokio::spawn(panics::keep("jobs", move || work::run(Weak::clone(&weak), id.clone())));
}
