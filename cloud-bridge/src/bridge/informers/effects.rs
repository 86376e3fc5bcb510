//! Executes the effects of an event: changes of what nodes should hold, watches that start and end, questions.

use std::collections::VecDeque;
use std::sync::Arc;

use edge_protocol::message::ObjectKey;
use edge_protocol::state::{NodeState, StateError};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::ask::{finish_mirror, restore_ready};
use super::claims::follow_claim;
use super::labels::tell_labels;
use super::object::watch_object;
use super::policy_views::watch_policy_views;
use super::service_views::tell_service_views;
use super::services::watch_services;
use super::site_view::tell_site;
use super::views::tell_views;
use super::{Informers, panics};
use crate::bridge::devices::events::Takes;
use crate::bridge::devices::watch::DeviceWatch;
use crate::bridge::pod_references::{
    CLAIM, DEVICE_VIEWS, NODE_LABELS, POLICY_VIEWS, RULE_VIEWS, SERVICE_LINKS, SERVICE_VIEWS,
};
use crate::bridge::requests::Requests;
use crate::bridge::rules::watch::RuleWatch;
use crate::bridge::shared::Shared;
use crate::bridge::sites::SITE_VIEW;
use crate::bridge::world::Effect;

/// Maximum number of effects per step. Most take some microseconds; one that sends an object serializes it.
const AT_ONCE: usize = 32;

impl Informers {
    /// Executes some of the pending effects. An object for ten thousand nodes must not block the frames that they send.
    pub(super) fn carry_out(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return self.effects.clear() };
        for _ in 0..AT_ONCE {
            let Some(effect) = self.effects.pop_front() else {
                // Releases the capacity: the queue was large if all nodes had effects.
                self.effects = VecDeque::new();
                return;
            };
            match effect {
                Effect::Set { node, object } => change(&shared, &node, |state| {
                    let news = state.set_text(&object.digest, || object.text())?;
                    // The end of a pod is news only for a node without its state.
                    if !news && object.has_ended {
                        state.renew(&object.digest, object.text());
                    }
                    Ok(())
                }),
                Effect::Remove { node, key, uid } => change(&shared, &node, |state| {
                    state.remove(&key, &uid);
                    Ok(())
                }),
                Effect::Withdraw { node, key, uid } => change(&shared, &node, |state| {
                    state.withdraw(&key, &uid);
                    Ok(())
                }),
                Effect::Listed { node, session } => change(&shared, &node, |state| {
                    state.listed(session);
                    Ok(())
                }),
                Effect::Ask { node, key, uid } => self.ask_if_gone(node, key, uid),
                Effect::Watch { key, node } => self.watch(key, &node),
                Effect::ReadJobs => {
                    let round = self.world.present_round();
                    self.job_readings.push_back((shared.jobs.ask(), round));
                }
                Effect::Admit { key, node } => {
                    if let Some(question) = self.admissions.ask(&self.clients, &node, &key) {
                        self.questions.push(question);
                    }
                }
                Effect::Unwatch { key } => {
                    if let Some((_, task)) = self.watches.remove(&key) {
                        task.abort();
                    }
                }
                Effect::RestoreReady { node, key, uid, version, failures } => {
                    if shared.known(&node).is_some_and(|node| node.link().is_some()) {
                        let requests = Requests::new(self.clients.as_node(&node));
                        self.questions.push(restore_ready(requests, node, key, uid, (version, failures)).boxed());
                    }
                }
                Effect::FinishMirror { node, key, uid, failures } => {
                    let requests = Requests::new(self.clients.as_node(&node));
                    self.questions.push(finish_mirror(requests, node, key, uid, failures).boxed());
                }
            }
        }
    }

    fn watch(&mut self, key: ObjectKey, node: &str) {
        self.counter += 1;
        let watch = self.counter;
        let (client, own) = (self.clients.as_node(node), self.clients.own().clone());
        let (what, news, node) = (key.clone(), self.news.clone(), node.to_owned());
        let peers = self.peers.clone();
        let shared = self.shared.upgrade();
        let api = shared.as_ref().and_then(|shared| shared.settings.api.clone());
        let round = self.world.present_round();
        let services = (key.kind == SERVICE_VIEWS).then(|| self.service_watches.get(&own, &key, round));
        let rules = shared.as_ref().filter(|_| key.kind == RULE_VIEWS);
        let rules = rules.map(|shared| shared.rules.get_or(round, || RuleWatch::begin(&self.clients, round)));
        let devices = shared.filter(|_| key.kind == DEVICE_VIEWS).map(|shared| {
            let nodes = Arc::downgrade(&shared);
            let takes: Arc<Takes> = Arc::new(move |node: &str| nodes.upgrade()?.known(node)?.takes_devices());
            shared.devices.get_or(round, || DeviceWatch::begin(&self.clients, takes, round))
        });
        let sites = self.sites.clone();
        let follow = move || -> BoxFuture<'static, ()> {
            let (client, what, news, sites) = (client.clone(), what.clone(), news.clone(), sites.clone());
            if let Some(services) = services.clone() {
                return tell_service_views(services, sites, what, watch, news).boxed();
            }
            if let Some(devices) = devices.clone() {
                let views = devices.of_node(&what.name);
                return tell_views(devices, views, round, what, watch, news).boxed();
            }
            if let Some(rules) = rules.clone() {
                let views = rules.of_node(&what.name);
                return tell_views(rules, views, round, what, watch, news).boxed();
            }
            match what.kind.as_str() {
                SERVICE_LINKS => watch_services(client, what, watch, news, api.clone()).boxed(),
                POLICY_VIEWS => watch_policy_views(own.clone(), peers.clone(), what, watch, news).boxed(),
                SITE_VIEW => tell_site(sites, what, watch, news).boxed(),
                NODE_LABELS => tell_labels(client, node.clone(), what, watch, news).boxed(),
                CLAIM => follow_claim(client, what, watch, news).boxed(),
                _ => watch_object(client, what, watch, news).boxed(),
            }
        };
        let about = format!("the watch of {} {}/{}", key.kind, key.namespace, key.name);
        let task = tokio::spawn(async move { panics::keep(&about, follow).await });
        if let Some((_, old)) = self.watches.insert(key, (watch, task)) {
            old.abort();
        }
    }
}

/// Changes what a node should hold, and wakes its connection.
fn change<F>(shared: &Arc<Shared>, node: &str, change: F)
where
    F: FnOnce(&mut NodeState) -> Result<(), StateError>,
{
    let Some(node) = shared.known(node) else { return };
    let outcome = change(&mut node.state());
    match outcome {
        // A deletion and a late event of the same object: nothing changed.
        Ok(()) | Err(StateError::Deleted { .. }) => node.changed.notify_one(),
        Err(error) => log::error!("node {}: {error}", node.name),
    }
}
