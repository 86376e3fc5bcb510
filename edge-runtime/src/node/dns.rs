//! The DNS helper of the node: when it runs, and what the daemon sends it.

use std::net::IpAddr;
use std::time::Duration;

use async_executor::Task;
use edge_protocol::version::INTERESTS;

use super::context::Context;
use super::services::Services;
use super::sources::News;
use crate::config::NetworkMode;
use crate::dns::client::{self, Helper, Teller};
use crate::dns::interests::{Asked, Interests};
use crate::launch::Launch;
use crate::net::dns_link;
use crate::pod::backoff::pause_after;
use crate::pod::clock::Mono;
use crate::pod::spec::host_network;
use crate::store::Fact;

/// Minimum time between two messages to the helper.
const PAUSE: Duration = Duration::from_millis(100);
/// Kernel rules have priority: sending all names of a thousand Services takes as long as changing one rule.
const AFTER_RULES: Duration = Duration::from_millis(30);

#[derive(Default)]
pub(super) struct Dns {
    /// Read from the store at the first use.
    interests: Option<Interests>,
    /// The last connected bridge supports interests in namespaces.
    bridge_follows: bool,
    /// There are interests that the last hello did not have.
    unsent: bool,
    running: Option<Running>,
    /// The node had a pod with its own network, which may send queries.
    answers: bool,
    /// Addresses of the link for pods of CNI plugins, once it exists.
    link: Option<Vec<IpAddr>>,
    /// The kernel has refused the link: when it is tried again, and the number of failures.
    again: Option<(Mono, u32)>,
    /// The check for the helper of an earlier daemon is done.
    looked: bool,
    not_before: Option<Mono>,
    /// [`AFTER_RULES`] has passed.
    waited: bool,
}

struct Running {
    listen: Vec<IpAddr>,
    teller: Teller,
    _task: Task<()>,
}

impl Dns {
    /// Starts and ends the helper as needed, and sends it changes.
    pub(super) fn step(&mut self, cx: &Context, launch: &Launch, services: &mut Services) {
        self.look(cx);
        self.send_interests(cx);
        let is_due = self.again.is_some_and(|(at, _)| at <= cx.mono());
        if self.running.is_none() || services.has_other_names() || is_due {
            let wanted = self.wanted(cx, launch, services);
            if wanted != self.running.as_ref().map(|running| running.listen.clone()) {
                self.run(cx, launch, services, wanted);
            }
        }
        let now = cx.mono();
        if !self.has_news(services) || !cx.resumed || self.not_before.is_some_and(|at| now < at) {
            return;
        }
        if services.is_changing() && !std::mem::replace(&mut self.waited, true) {
            self.not_before = Some(now.after(AFTER_RULES));
            return;
        }
        self.waited = false;
        self.not_before = Some(now.after(PAUSE));
        if let Some(running) = &self.running {
            let mut cluster = services.cluster(cx, launch, running.teller.takes_parts());
            cluster.online = cx.connection().is_some() && self.bridge_follows;
            if cluster.followed.is_empty() && !self.bridge_follows {
                // The bridge cannot be asked about namespaces, so absent names of any namespace are denied.
                cluster.followed.push(String::new());
            }
            cluster.interests = self.interests.as_ref().map(Interests::names).unwrap_or_default();
            running.teller.tell(&cluster);
        }
    }

    /// Addresses that the helper should serve; empty if it only serves health checks. `None` if it is not needed.
    fn wanted(&mut self, cx: &Context, launch: &Launch, services: &Services) -> Option<Vec<IpAddr>> {
        let (config, teardown) = (&cx.config, &launch.sandboxes.teardown);
        self.answers |= config.services.has_dns() && cx.pods.iter().any(|(_, entry)| !host_network(&entry.pod));
        let mut listen = Vec::new();
        if self.answers {
            let mode = config.network.mode;
            if mode != NetworkMode::Cni {
                listen.extend(teardown.network.settings().subnets.iter().map(|subnet| subnet.gateway()));
            }
            let attached = || mode == NetworkMode::Auto && cx.pods.iter().any(|(uid, _)| teardown.is_attached(uid));
            if self.link.is_none() {
                if mode == NetworkMode::Cni || attached() {
                    self.make_link(cx);
                } else {
                    self.again = None;
                }
            }
            listen.extend(self.link.iter().flatten());
        }
        (self.answers || services.has_health_checks()).then_some(listen)
    }

    /// Makes the link for pods of CNI plugins, unless the kernel has refused it just now.
    fn make_link(&mut self, cx: &Context) {
        let (at, failures) = self.again.unwrap_or_default();
        if cx.mono() < at {
            return;
        }
        match dns_link::ensure(&cx.config.network.bridge) {
            Ok(addresses) => (self.link, self.again) = (Some(addresses), None),
            Err(error) => {
                if failures == 0 {
                    log::error!("no DNS for pods of CNI plugins: {error}; tried again until it is there");
                }
                self.again = Some((cx.mono().after(pause_after(failures)), failures.saturating_add(1)));
            }
        }
    }

    fn run(&mut self, cx: &Context, launch: &Launch, services: &mut Services, wanted: Option<Vec<IpAddr>>) {
        self.running = None;
        let Some(listen) = wanted else {
            // A helper of an earlier daemon may be needed later, unless DNS is disabled.
            if !cx.config.services.has_dns() {
                client::end(&cx.paths.dns());
            }
            return;
        };
        let subnets = launch.sandboxes.teardown.network.settings().subnets.clone();
        let (root, socket) = (cx.paths.root().to_owned(), cx.paths.dns());
        let helper = Helper { root, socket, listen: listen.clone(), subnets };
        let news = cx.senders.news.clone();
        let wakes = news.clone();
        // If the queue is full, the helper asks again, and queued news wake the loop.
        let (teller, work) = helper.keep(
            move |namespace| drop(news.try_send(News::NamespaceAsked(namespace))),
            move || drop(wakes.try_send(News::Woken)),
        );
        services.answer_names_at(&listen);
        self.running = Some(Running { listen, teller, _task: cx.tasks.spawn(work) });
    }

    /// At the start: removes helper and link of an earlier daemon if DNS is disabled.
    fn look(&mut self, cx: &Context) {
        if !std::mem::replace(&mut self.looked, true) && !cx.config.services.has_dns() {
            client::end(&cx.paths.dns());
            // The local API may have addresses on it.
            if !cx.config.local_api.is_on()
                && let Err(error) = dns_link::remove(&cx.config.network.bridge)
            {
                log::warn!("{error}");
            }
        }
    }

    /// A bridge with these features has connected.
    pub(super) fn connected(&mut self, services: &mut Services, features: &[String]) {
        self.bridge_follows = features.iter().any(|feature| feature == INTERESTS);
        services.names_changed();
    }

    /// Sends interests that the last hello did not have, as soon as the bridge takes them: a pod may ask for one while
    /// the bridge's answer to the hello is on its way.
    fn send_interests(&mut self, cx: &Context) {
        if self.unsent
            && self.bridge_follows
            && let (Some(link), Some(interests)) = (cx.connection(), &self.interests)
        {
            self.unsent = !link.interests(interests.names());
        }
    }

    /// Namespaces whose Services the bridge should send, beside those of pods: for its hello.
    pub(super) fn interests(&mut self, cx: &mut Context) -> Vec<String> {
        if !cx.config.services.has_dns() {
            return Vec::new();
        }
        self.unsent = false;
        let interests = read(&mut self.interests, cx);
        if interests.forget(wall(cx)) {
            write(interests, cx);
        }
        interests.names()
    }

    /// The helper reports a query of a pod for a name of this namespace.
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
            self.unsent = true;
            services.names_changed();
        }
    }

    /// Whether a helper is ready for a message and there is one to send.
    fn has_news(&self, services: &Services) -> bool {
        let teller = self.running.as_ref().map(|running| &running.teller);
        teller.is_some_and(|teller| teller.is_free() && (teller.wants_all() || services.has_other_names()))
    }

    /// When [`Dns::step`] must run even without an event.
    pub(super) fn wake(&self, services: &Services) -> Option<Mono> {
        let news = self.not_before.filter(|_| self.has_news(services));
        news.into_iter().chain(self.again.map(|(at, _)| at)).min()
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

/// Stores the interests. On failure pods' next queries restore them.
fn write(interests: &Interests, cx: &mut Context) {
    if let Err(error) = cx.store.write(|writer| writer.set_fact(Fact::Interests, &interests.text())) {
        log::error!("{error}");
    }
}

fn wall(cx: &Context) -> u64 {
    u64::try_from(cx.clock.now().wall.as_second()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
