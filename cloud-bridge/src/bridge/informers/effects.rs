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
use super::news::Subscription;
use super::object::watch_object;
use super::policy_views::watch_policy_views;
use super::service_links::watch_service_links;
use super::service_views::tell_service_views;
use super::site_view::tell_site;
use super::views::tell_views;
use super::{Informers, panics};
use crate::bridge::devices::events::Takes;
use crate::bridge::devices::watch::DeviceWatch;
use crate::bridge::nodes::Nodes;
use crate::bridge::requests::Requests;
use crate::bridge::rules::watch::RuleWatch;
use crate::bridge::told::kinds::{Kind, Watch};
use crate::bridge::world::Effect;

/// Maximum number of effects per step. Most take some microseconds; one that sends an object serializes it.
const AT_ONCE: usize = 32;

/// Begins the work of a watch: at its start, and again after a panic.
type Follow = Box<dyn Fn() -> BoxFuture<'static, ()> + Send>;

impl Informers {
    /// Executes some of the pending effects. An object for ten thousand nodes must not block the frames that they send.
    pub(super) fn carry_out(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(effect) = self.effects.pop_front() else {
                // Releases the capacity: the queue was large if all nodes had effects.
                self.effects = VecDeque::new();
                return;
            };
            match effect {
                Effect::Set { node, object } => {
                    let object = self.attached(&node, object);
                    change(&self.nodes, &node, |state| {
                        let news = state.set_text(&object.digest, || object.text())?;
                        // The end of a pod is news only for a node without its state.
                        if !news && object.has_ended {
                            state.renew(&object.digest, object.text());
                        }
                        Ok(())
                    });
                }
                Effect::Remove { node, key, uid } => change(&self.nodes, &node, |state| {
                    state.remove(&key, &uid);
                    Ok(())
                }),
                Effect::Withdraw { node, key, uid } => change(&self.nodes, &node, |state| {
                    state.withdraw(&key, &uid);
                    Ok(())
                }),
                Effect::Listed { node, session } => change(&self.nodes, &node, |state| {
                    state.listed(session);
                    Ok(())
                }),
                Effect::Ask { node, key, uid } => self.ask_if_gone(node, key, uid),
                Effect::Watch { key, node } => self.watch(key, &node),
                Effect::ReadJobs => {
                    let round = self.world.present_round();
                    self.job_readings.extend(self.jobs.upgrade().map(|jobs| (jobs.ask(), round)));
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
                    if self.nodes.get(&node).is_some_and(|node| node.link().is_some()) {
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
        let to = Subscription { key: key.clone(), watch, news: self.news.clone() };
        let Some(follow) = Kind::of(&key).and_then(|kind| self.follow(kind, to, node)) else {
            return log::error!("{} {}/{} cannot be watched", key.kind, key.namespace, key.name);
        };
        let about = format!("the watch of {} {}/{}", key.kind, key.namespace, key.name);
        let task = tokio::spawn(async move { panics::keep(&about, follow).await });
        if let Some((_, old)) = self.watches.insert(key, (watch, task)) {
            old.abort();
        }
    }

    /// How an object or group of this kind is followed; `node`: its reader.
    fn follow(&mut self, kind: Kind, to: Subscription, node: &str) -> Option<Follow> {
        let round = self.world.present_round();
        let follow: Follow = match kind.facts().watch {
            Watch::Never => return None,
            Watch::Object => {
                let client = self.clients.as_node(node);
                Box::new(move || watch_object(client.clone(), kind, to.clone()).boxed())
            }
            Watch::Claim => {
                let (client, attachments) = (self.clients.as_node(node), Arc::clone(&self.attachments));
                Box::new(move || follow_claim(client.clone(), Arc::clone(&attachments), round, to.clone()).boxed())
            }
            Watch::NodeLabels => {
                let (client, node) = (self.clients.as_node(node), node.to_owned());
                Box::new(move || tell_labels(client.clone(), node.clone(), to.clone()).boxed())
            }
            Watch::ServiceLinks => {
                let client = self.clients.as_node(node);
                let api = self.api.clone();
                Box::new(move || watch_service_links(client.clone(), api.clone(), to.clone()).boxed())
            }
            Watch::Services => {
                let services = self.service_watches.get(self.clients.own(), &to.key, round);
                let sites = self.sites.clone();
                Box::new(move || tell_service_views(Arc::clone(&services), sites.clone(), to.clone()).boxed())
            }
            Watch::Policies => {
                let (own, peers) = (self.clients.own().clone(), self.peers.clone());
                Box::new(move || watch_policy_views(own.clone(), peers.clone(), to.clone()).boxed())
            }
            Watch::Site => {
                let sites = self.sites.clone();
                Box::new(move || tell_site(sites.clone(), to.clone()).boxed())
            }
            Watch::Devices => {
                let nodes = Arc::clone(&self.nodes);
                let takes: Arc<Takes> = Arc::new(move |node: &str| nodes.get(node)?.takes_devices());
                let devices = self.devices.watch.get_or(round, || DeviceWatch::begin(&self.clients, takes, round));
                Box::new(move || {
                    let views = devices.of_node(&to.key.name);
                    tell_views(Arc::clone(&devices), views, round, to.clone()).boxed()
                })
            }
            Watch::Rules => {
                let rules = self.rules.watch.get_or(round, || RuleWatch::begin(&self.clients, round));
                Box::new(move || {
                    let views = rules.of_node(&to.key.name);
                    tell_views(Arc::clone(&rules), views, round, to.clone()).boxed()
                })
            }
        };
        Some(follow)
    }
}

/// Changes what a node should hold, and wakes its connection.
fn change<F>(nodes: &Nodes, node: &str, change: F)
where
    F: FnOnce(&mut NodeState) -> Result<(), StateError>,
{
    let Some(node) = nodes.get(node) else { return };
    let outcome = change(&mut node.state());
    match outcome {
        // A deletion and a late event of the same object: nothing changed.
        Ok(()) | Err(StateError::Deleted { .. }) => node.changed.notify_one(),
        Err(error) => log::error!("node {}: {error}", node.name),
    }
}
