//! The helper that answers pods' questions for names: when there is one, and what it is told.

use std::net::IpAddr;
use std::time::Duration;

use async_executor::Task;

use super::context::Context;
use super::services::Services;
use crate::dns::client::{self, Helper, Teller};
use crate::launch::Launch;
use crate::pod::clock::Mono;
use crate::pod::spec::host_network;

/// Between two times that it is told of changes.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Dns {
    running: Option<(Teller, Task<()>)>,
    /// One that an earlier daemon has left has been looked for.
    looked: bool,
    not_before: Option<Mono>,
}

impl Dns {
    /// Starts the helper with the first pod that has a network of its own, and tells it what has changed.
    pub(super) fn step(&mut self, cx: &Context, launch: &Launch, services: &mut Services) {
        if !cx.config.services.has_dns() {
            if !std::mem::replace(&mut self.looked, true) {
                client::end(&cx.paths.dns());
            }
            return;
        }
        if self.running.is_none() {
            if !cx.pods.iter().any(|(_, entry)| !host_network(&entry.pod)) {
                return;
            }
            let subnets = launch.sandboxes.teardown.network.settings().subnets.clone();
            let listen: Vec<IpAddr> = subnets.iter().map(|subnet| subnet.gateway()).collect();
            let helper = Helper { root: cx.paths.root().to_owned(), socket: cx.paths.dns(), subnets };
            let (teller, work) = helper.keep();
            self.running = Some((teller, cx.tasks.spawn(work)));
            services.answer_names_at(&listen);
        }
        let now = cx.mono();
        if !services.has_other_names() || !cx.resumed || self.not_before.is_some_and(|at| now < at) {
            return;
        }
        self.not_before = Some(now.after(PAUSE));
        if let Some((teller, _)) = &self.running {
            teller.tell(&services.cluster(cx, launch));
        }
    }

    /// When [`Dns::step`] has something to do although nothing happens.
    pub(super) fn wake(&self, services: &Services) -> Option<Mono> {
        self.not_before.filter(|_| self.running.is_some() && services.has_other_names())
    }
}
