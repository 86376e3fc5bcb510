//! The helper that answers pods' questions for names: when there is one, and what it is told.

use std::net::IpAddr;
use std::time::Duration;

use async_executor::Task;
use edge_protocol::version::INTERESTS;

use super::context::Context;
use super::services::Services;
use super::sources::News;
use crate::dns::client::{self, Helper, Teller};
use crate::dns::interests::{Asked, Interests};
use crate::launch::Launch;
use crate::pod::clock::Mono;
use crate::pod::spec::host_network;
use crate::store::Fact;

/// Between two times that it is told of changes.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Dns {
    /// Read from the store when they are first needed.
    interests: Option<Interests>,
    /// The bridge that was connected last can be asked about namespaces.
    bridge_follows: bool,
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
            let news = cx.senders.news.clone();
            // Full, it is asked again.
            let (teller, work) = helper.keep(move |namespace| drop(news.try_send(News::NamespaceAsked(namespace))));
            self.running = Some((teller, cx.tasks.spawn(work)));
            services.answer_names_at(&listen);
        }
        let now = cx.mono();
        if !services.has_other_names() || !cx.resumed || self.not_before.is_some_and(|at| now < at) {
            return;
        }
        self.not_before = Some(now.after(PAUSE));
        if let Some((teller, _)) = &self.running {
            let mut cluster = services.cluster(cx, launch);
            cluster.online = cx.connection().is_some() && self.bridge_follows;
            if cluster.followed.is_empty() && !self.bridge_follows {
                // Nobody knows of any namespace: of a cluster that there is not, or not for this node.
                cluster.followed.push(String::new());
            }
            cluster.interests = self.interests.as_ref().map(Interests::names).unwrap_or_default();
            teller.tell(&cluster);
        }
    }

    /// To a bridge that has these abilities.
    pub(super) fn connected(&mut self, services: &mut Services, features: &[String]) {
        self.bridge_follows = features.iter().any(|feature| feature == INTERESTS);
        services.names_changed();
    }

    /// Namespaces whose Services the bridge is to tell of besides those of pods.
    pub(super) fn interests(&mut self, cx: &mut Context) -> Vec<String> {
        if !cx.config.services.has_dns() {
            return Vec::new();
        }
        let interests = read(&mut self.interests, cx);
        if interests.forget(wall(cx)) {
            write(interests, cx);
        }
        interests.names()
    }

    /// A pod asks for a name of this namespace, says the helper.
    pub(super) fn asked(&mut self, cx: &mut Context, services: &mut Services, namespace: &str) {
        let empty = |namespace: &str| !services.has_any_in(namespace);
        let mono = cx.mono().since(Mono::default()).as_secs();
        let interests = read(&mut self.interests, cx);
        let asked = interests.asked(namespace, wall(cx), mono, &empty);
        if asked == Asked::Known {
            return;
        }
        write(interests, cx);
        if asked == Asked::New {
            log::info!("a pod asks for Services of namespace {namespace}: they are followed from now on");
            let names = interests.names();
            if let Some(link) = cx.connection() {
                let _ = link.interests(names);
            }
            services.names_changed();
        }
    }

    /// When [`Dns::step`] has something to do although nothing happens.
    pub(super) fn wake(&self, services: &Services) -> Option<Mono> {
        self.not_before.filter(|_| self.running.is_some() && services.has_other_names())
    }
}

fn read<'a>(interests: &'a mut Option<Interests>, cx: &Context) -> &'a mut Interests {
    interests.get_or_insert_with(|| {
        let text = cx.store.fact(Fact::Interests).unwrap_or_else(|error| {
            log::error!("{error}");
            None
        });
        text.map(|text| Interests::read(&text)).unwrap_or_default()
    })
}

/// What is not written down is asked for again.
fn write(interests: &Interests, cx: &mut Context) {
    if let Err(error) = cx.store.write(|writer| writer.set_fact(Fact::Interests, &interests.text())) {
        log::error!("{error}");
    }
}

fn wall(cx: &Context) -> u64 {
    u64::try_from(cx.clock.now().wall.as_second()).unwrap_or_default()
}
