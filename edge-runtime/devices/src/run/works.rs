//! The node that the helper works for, and what the daemon changes of it. Knows no socket.

use std::collections::BTreeSet;

use sampan_devices_control::{Kind, Named, Settings, ToHelper};

use crate::rules::{Messages, Requests};
use crate::twins::{Now, Twins};

/// The node and settings this helper works for.
#[derive(Debug)]
pub(super) struct Works {
    pub(super) node: String,
    pub(super) settings: Settings,
    pub(super) twins: Twins,
    pub(super) messages: Messages,
    pub(super) requests: Requests,
}

impl Works {
    /// State for the first daemon of this process.
    pub(super) fn new(now: Now, node: String, settings: Settings) -> Self {
        let seed = now.wall ^ (u64::from(std::process::id()) << 40);
        let twins = Twins::new(node.clone(), &settings, seed);
        let messages = Messages::new(settings.store.clone(), !seed);
        Self { twins, messages, requests: Requests::new(now.wall << 10), node, settings }
    }

    /// A daemon is there, and begins to tell all.
    pub(super) fn daemon_came(&mut self, now: Now) {
        self.twins.daemon_came(now);
        self.messages.daemon_came();
        self.requests.daemon_came();
    }

    pub(super) fn daemon_went(&mut self, now: Now) {
        self.twins.daemon_went(now);
        self.messages.daemon_went();
        self.requests.link(false);
    }

    /// Topics to subscribe to, besides messages of all devices.
    pub(super) fn wanted(&self) -> BTreeSet<String> {
        let mut wanted = self.messages.filters();
        wanted.append(&mut self.twins.filters());
        wanted
    }

    /// One place shows both.
    pub(super) fn count(&mut self) {
        let Messages { taken, dropped, .. } = self.messages;
        let refused = std::mem::take(&mut self.messages.refused);
        let counters = self.twins.counters();
        counters.refused += refused;
        (counters.rules.taken, counters.rules.dropped) = (taken, dropped);
    }

    /// Passes a message of the daemon to the core. Returns whether the topics of rules may have changed.
    pub(super) fn tell(&mut self, now: Now, line: ToHelper) -> bool {
        let Self { twins, messages, requests, settings, .. } = self;
        match line {
            ToHelper::Object { kind: Kind::Rule, namespace, name, uid, body } => {
                if let Err(why) = settings.rules.serve(&namespace) {
                    log::warn!("rule {namespace}/{name} does nothing here: {why}");
                    messages.gone(&uid);
                    requests.gone(&uid);
                } else if requests.rule(&uid, &body) {
                    messages.gone(&uid);
                    if settings.servicebus.is_none() {
                        log::warn!("rule {uid} takes requests of this node, where device-twin.servicebus is off");
                    }
                } else {
                    messages.rule(uid, &body);
                }
                return true;
            }
            ToHelper::Gone { kind: Kind::Rule, uid, .. } => {
                messages.gone(&uid);
                requests.gone(&uid);
                return true;
            }
            ToHelper::Response { id, response } => requests.responded(id, response),
            ToHelper::Stored { batch } => messages.stored(batch),
            ToHelper::Object { kind, namespace, name, uid, body } => {
                twins.object(now, kind, Named { namespace: namespace.into(), name: name.into() }, uid, &body);
            }
            ToHelper::Gone { kind, namespace, name, uid } => {
                twins.gone(now, kind, &Named { namespace: namespace.into(), name: name.into() }, &uid)
            }
            ToHelper::Kept { uid, record } => twins.kept(uid, record),
            ToHelper::Told {} => {
                twins.told(now);
                messages.told();
                requests.told();
                return true;
            }
            ToHelper::Pod { uid, namespace } => twins.pod(now, &uid, namespace),
            ToHelper::Link { up, clock_set } => {
                twins.link(now, up, clock_set);
                requests.link(up);
            }
            ToHelper::Ack { batch, refused } => twins.acked(now, batch, &refused),
            ToHelper::Daemon { .. }
            | ToHelper::Client {}
            | ToHelper::Ask { .. }
            | ToHelper::Call { .. }
            | ToHelper::Ping {}
            | ToHelper::End {} => {}
        }
        false
    }
}
