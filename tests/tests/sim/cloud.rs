//! A bridge process: follows the watch, serves one node, forgets everything when it restarts.

use crate::api::{Api, Watch};
use edge_protocol::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
use edge_protocol::message::{Object, Report};
use edge_protocol::state::{NodeState, StateError};
use std::time::Duration;

pub(crate) const WINDOW: usize = 2_000;

#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) state: NodeState,
    pub(crate) session: Option<BridgeSession>,
    /// The first list, while it is being read.
    listing: Option<Vec<Object>>,
    /// Reports written to the API and not yet acknowledged.
    pub(crate) written: Vec<u64>,
}

impl Cloud {
    /// A new process: a new stream, and a list of what the API has now.
    pub(crate) fn start(stream: u64, api: &mut Api) -> Self {
        api.watch.clear();
        // Few enough to be forgotten often, but more than the node asks about at once.
        let tombstones = if api.created() < 300 { 8 } else { 300 };
        let used = api.objects.iter().filter(|(_, o)| o.used);
        Self {
            state: NodeState::new(format!("stream-{stream}")).keep_tombstones(tombstones),
            session: None,
            listing: Some(used.map(|(key, o)| o.object(key)).collect()),
            written: Vec::new(),
        }
    }

    pub(crate) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Reads the next thing of the list or the watch. False if there is nothing.
    pub(crate) fn follow(&mut self, api: &mut Api) -> bool {
        if let Some(list) = &mut self.listing {
            match list.pop() {
                Some(object) => drop(self.state.set(object).expect("fits")),
                None => {
                    self.state.listed();
                    self.listing = None;
                }
            }
            return true;
        }
        let Some(event) = api.watch.pop_front() else { return false };
        match event {
            Watch::Set(object) => {
                let result = self.state.set(object);
                assert!(!matches!(result, Err(StateError::Deleted { .. })), "the watch is in order");
            }
            Watch::Deleted(key, uid) => drop(self.state.remove(&key, &uid)),
            Watch::Withdrawn(key, uid) => drop(self.state.withdraw(&key, &uid)),
        }
        true
    }

    pub(crate) fn connect(&mut self, number: u64, now: Duration) -> Option<BridgeSession> {
        let mut settings = BridgeSettings::new("node", "cluster", number);
        settings.window = WINDOW;
        self.written.clear();
        self.session.replace(BridgeSession::new(settings, &mut self.state, now))
    }

    /// Acts on events. Returns the numbers the node says it has committed.
    pub(crate) fn drain(&mut self, api: &mut Api) -> Vec<u64> {
        let mut acked = Vec::new();
        let Some(session) = &mut self.session else { return acked };
        while let Some(event) = session.poll_event() {
            match event {
                BridgeEvent::Acked { seq } => acked.push(seq),
                BridgeEvent::Report { id, report } => {
                    if let Report::PodStatus { uid, status, .. } = report {
                        api.write_status(&uid, status["version"].as_u64().expect("a version"));
                    }
                    self.written.push(id);
                }
                BridgeEvent::Unlisted(objects) => {
                    for object in objects {
                        let there = api.objects.get(&object.key).is_some_and(|o| o.uid == object.uid && o.used);
                        if !there {
                            self.state.remove(&object.key, &object.uid);
                        }
                    }
                }
                BridgeEvent::Connected { .. }
                | BridgeEvent::Nacked { .. }
                | BridgeEvent::TokenRequest { .. }
                | BridgeEvent::Stream(_) => {}
            }
        }
        acked
    }
}
