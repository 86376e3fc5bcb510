//! Which node should hold what: pods of connected nodes, and the ConfigMaps and Secrets that those pods name. Pure:
//! watch events in, effects out.
//!
//! A node's list is complete when its pods have been listed and every object that they name was found or is known to be
//! missing. The node gets nothing before that, because it deletes what a complete list lacks. After that, a pod waits
//! for the objects it names, so that it does not start without a ConfigMap that is only late.
//!
//! A node whose last changes came from another bridge may hold newer states than this bridge has received. Its list is
//! incomplete again then, until its pods and their objects have been read again. Readings are counted in rounds: a
//! reading that started in a round is at least as new as the node's state before it.

mod admission;
mod effect;
mod interests;
mod jobs;
mod objects;
mod orders;
mod pods;
mod policies;
mod room;
mod round;
mod services;
mod shared;
mod uses;
mod volumes;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use edge_protocol::message::ObjectKey;
use edge_protocol::version::Wants;

use super::told::groups::ServiceScope;
pub use super::told::{Group, Told};
pub use effect::Effect;
use interests::Interests;
use orders::Orders;
use room::Rooms;
pub use round::Round;
use shared::Shared;

/// Everything that the nodes of this bridge should hold.
#[derive(Debug, Default)]
pub struct World {
    nodes: HashMap<String, Node>,
    shared: HashMap<Arc<ObjectKey>, Shared>,
    rooms: Rooms,
    /// The newest round of readings.
    round: Round,
    service_scope: ServiceScope,
    /// Whether the site of every node is known.
    located: bool,
    orders: Orders,
    /// Whether lists are withheld: none is sent as complete.
    withheld: bool,
    /// Number of nodes that mount volumes of CSI drivers.
    csi_nodes: usize,
}

#[derive(Debug, Default)]
struct Node {
    /// By uid. In boxes: most nodes have few, and a leaf of the map has room for eleven.
    pods: BTreeMap<String, Box<Pod>>,
    /// Session of the connection that must get everything.
    session: u64,
    /// Objects that it asks for in addition to its pods.
    wants: Wants,
    /// Whether it takes orders of jobs.
    takes_orders: bool,
    /// Its site, if it asks for routes.
    site: Option<Box<str>>,
    interests: Interests,
    /// Groups that it receives because of both, in order.
    own: Box<[Arc<ObjectKey>]>,
    /// Groups of its devices and rules, if it asks for them, in order.
    behind: Box<[Arc<ObjectKey>]>,
    /// Data older than this round may be older than what the node holds.
    round: Round,
    /// Whether its pods have been read in that round or later.
    seeded: bool,
    /// Resource version of the list with which they were read. Pods that the watch delivers from before it may be
    /// deleted since.
    seeded_at: Option<u64>,
    listed: bool,
    /// Pods that were deleted since their list was requested: the list may still show them.
    gone: HashSet<String>,
    /// Pods that are deleted according to a request by name, though the watch may still deliver older states of them.
    /// At most [`pods::MAX_BURIED`], because a node may ask about invented names. The value says whether the list of all
    /// pods has yet to name the pod.
    buried: HashMap<String, bool>,
    /// Pods that are being requested by name; the list is not complete before it is known which pod has the name.
    asked: HashSet<String>,
}

#[derive(Debug)]
struct Pod {
    key: ObjectKey,
    /// In order. Pods that name the same objects share the text.
    refs: Box<[Arc<ObjectKey>]>,
    /// CSIDrivers that its specification names, in order.
    drivers: Box<[Arc<ObjectKey>]>,
    /// Those that it gets because its node mounts volumes of CSI drivers, and what the volumes of its claims name, in
    /// order.
    volumes: Box<[Arc<ObjectKey>]>,
    generation: i64,
    version: Option<u64>,
    terminating: bool,
    falsely_unready: bool,
    /// Whether the list of all pods has yet to name it.
    unlisted: bool,
    /// Not sent yet, because an object that it names is not known.
    held: Option<Arc<Told>>,
}

impl World {
    pub fn new(service_scope: ServiceScope) -> Self {
        Self { service_scope, ..Self::default() }
    }

    /// Sets whether lists are withheld: while true, no list is sent as complete.
    pub fn withhold_lists(&mut self, withheld: bool) {
        self.withheld = withheld;
    }

    pub fn is_ours(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Starts to keep this node's pods. Follow with [`refresh`](Self::refresh).
    pub fn add_node(&mut self, node: &str) {
        self.nodes.entry(node.to_owned()).or_default();
    }

    /// Removes a node and everything that only it used.
    pub fn drop_node(&mut self, node: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        let view = self.nodes.remove(node).unwrap_or_default();
        self.csi_nodes -= usize::from(view.wants.csi);
        view.pods.values().flat_map(|pod| pod.names()).for_each(|key| self.rooms.leave(node, key));
        let of_pods = view.pods.into_values().flat_map(|pod| {
            let Pod { refs, volumes, .. } = *pod;
            [refs, volumes]
        });
        for refs in of_pods.chain([view.own, view.behind]) {
            self.release(node, &refs, &mut effects);
        }
        // What it gives back may be for other nodes.
        effects.retain(
            |effect| !matches!(effect, Effect::Set { node: to, .. } | Effect::Withdraw { node: to, .. } if to == node),
        );
        effects
    }

    /// The node has said hello in this session, and comes from another bridge: it gets nothing before everything has
    /// been read again. Follow with a [`round`](Self::round) of readings and [`seed`](Self::seed).
    pub fn refresh(&mut self, node: &str, session: u64) {
        if let Some(view) = self.nodes.get_mut(node) {
            (view.session, view.round) = (session, self.round.after());
            (view.seeded, view.listed) = (false, false);
            view.asked.clear();
        }
    }

    /// The newest round of readings.
    pub fn present_round(&self) -> Round {
        self.round
    }

    /// Starts a round for requests about nodes; it belongs to the answer.
    pub fn round(&mut self) -> Round {
        self.round = self.round.after();
        self.round
    }

    /// Names of all nodes. The beginning and end of a list of all pods are handled node by node: all at once takes too
    /// long.
    pub fn nodes(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// Sends the pods that need not wait any longer, and marks the list as complete if it is; until then it requests
    /// what the list waits for.
    fn settle(&mut self, node: &str, effects: &mut Vec<Effect>) {
        self.freshen(node, effects);
        let Some(view) = self.nodes.get_mut(node) else { return };
        let shared = &self.shared;
        let pending = |key: &ObjectKey| shared.get(key).is_some_and(|s| s.is_pending_for(node));
        let late = |key: &ObjectKey| shared.get(key).is_some_and(|s| s.is_late_for(node, view.round));
        let placed = self.located || !view.wants.routes;
        let told = !view.own.iter().chain(&view.behind).any(|name| late(name));
        let ordered = !view.takes_orders || self.orders.are_of(view.round);
        let mut complete = !self.withheld && view.seeded && view.asked.is_empty() && placed && told && ordered;
        for pod in view.pods.values_mut() {
            if !view.listed && pod.names().any(|name| late(name)) {
                complete = false;
            }
            if pod.held.is_some() && (pod.terminating || !pod.names().any(|name| pending(name))) {
                let object = pod.held.take();
                effects.extend(object.map(|object| Effect::Set { node: node.to_owned(), object }));
            }
        }
        if complete && !view.listed {
            view.listed = true;
            effects.push(Effect::Listed { node: node.to_owned(), session: view.session });
        }
    }
}

/// Names in `one` but not in `other`; both are sorted.
fn without(one: &[Arc<ObjectKey>], other: &[Arc<ObjectKey>]) -> Vec<Arc<ObjectKey>> {
    one.iter().filter(|name| other.binary_search(name).is_err()).cloned().collect()
}

#[cfg(test)]
mod tests;
