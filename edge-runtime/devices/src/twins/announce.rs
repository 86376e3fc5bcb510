//! Unrequested deltas and documents, and new devices: what MQTT listeners must receive, only as fast as the broker takes
//! it.

use std::collections::BTreeMap;

use sampan_devices_control::Named;

use super::body::model_of;
use super::device::{Device, State, kind_in};
use super::documents::{self, Delta, Document, Member, MembershipUpdated, Step};
use super::now::{Now, rfc3339};
use super::waiting::Pending;
use super::{Message, Output, Twins, topics};

/// Most messages about one device.
const MESSAGES: usize = 3;
/// Until the broker's queue is looked at again.
const RETRY: u64 = 50;

impl Twins {
    /// The broker has connected: its subscribers have received nothing yet.
    pub(super) fn announce_all(&mut self, now: Now) {
        for (id, device) in self.devices.iter_mut().filter(|(_, device)| device.differs()) {
            self.announcements.all(id, &mut device.pending, now.mono);
        }
    }

    /// Announces the desired state of differing devices whose topics have a new subscriber.
    pub fn subscribed(&mut self, now: Now, hears: impl Fn(&str) -> bool) {
        for (id, device) in self.devices.iter_mut().filter(|(_, device)| device.differs()) {
            if hears(&topics::device(id, "twin/update/delta")) {
                self.announcements.delta(id, &mut device.pending, now.mono);
            }
        }
    }

    /// Drops announcements while the broker is away: they are computed again when it is back.
    pub(super) fn announce_nothing(&mut self) {
        for (id, device) in &mut self.devices {
            self.announcements.forget(id, &mut device.pending);
        }
    }

    pub(super) fn announce(&mut self, now: Now, mut room: usize) {
        if !self.heard {
            return;
        }
        self.announcements.retry = None;
        while let Some((at, id)) = self.announcements.next.first().cloned().filter(|(at, _)| *at <= now.mono) {
            if room < MESSAGES {
                self.announcements.retry = Some(now.mono + RETRY);
                return;
            }
            room -= MESSAGES;
            self.announcements.next.remove(&(at, id.clone()));
            self.announce_one(&id, now);
        }
    }

    fn announce_one(&mut self, id: &Named, now: Now) {
        let Some(device) = self.devices.get_mut(id) else { return };
        let Some(pending) = &mut device.pending else { return };
        let next = Pending { last: Some(now.mono), again: pending.again, ..Pending::default() };
        let Pending { added, all, changed, by_time, .. } = std::mem::replace(&mut **pending, next);
        let model = self.models.get(&model_of(id, &device.model));
        let (mut steps, mut twins, mut delta) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (name, property) in &device.properties {
            let twin = || property.twin(kind_in(model, name));
            if let Some(wanted) = property.delta() {
                twins.insert(name.clone(), Some(twin()));
                delta.insert(name.clone(), wanted.clone());
            }
            match changed.get(name) {
                Some(last) => drop(steps.insert(name.clone(), Step { last: last.clone(), current: Some(twin()) })),
                None if all && delta.contains_key(name) => {
                    steps.insert(name.clone(), Step { last: None, current: Some(twin()) });
                }
                None => {}
            }
        }
        if let Some(pending) = device.pending.as_mut().filter(|_| !delta.is_empty()) {
            self.announcements.said(id, pending, now.mono, by_time);
        }
        if added {
            let member = member(id, device, false);
            self.membership_updated(now, Some(member), None);
        }
        if !steps.is_empty() {
            let event_id = self.ids.next();
            let document = Document { event_id: &event_id, timestamp: now.wall, twin: &steps };
            self.say(topics::device(id, "twin/update/document"), &document);
        }
        if !delta.is_empty() {
            let event_id = self.ids.next();
            let delta = Delta { event_id: &event_id, timestamp: now.wall, twin: &twins, delta: &delta };
            self.say(topics::device(id, "twin/update/delta"), &delta);
        }
    }

    /// One device came or went.
    pub(super) fn membership_updated(&mut self, now: Now, added: Option<Member>, removed: Option<Member>) {
        let event_id = self.ids.next();
        let document = MembershipUpdated {
            event_id: &event_id,
            timestamp: now.wall,
            added_devices: added.map(|one| [one]),
            removed_devices: removed.map(|one| [one]),
        };
        self.say(topics::node(&self.node, "updated"), &document);
    }

    fn say(&mut self, topic: String, document: &impl serde::Serialize) {
        if self.heard {
            self.outputs.push(Output::Publish(Message { topic, payload: documents::text(document) }));
        }
    }
}

/// A device in the form of membership messages; `all`: with its reported state.
pub(super) fn member(id: &Named, device: &Device, all: bool) -> Member {
    let state = device.state.as_deref().filter(|_| all);
    let said = |state: &State| (state.name.clone(), rfc3339(state.last_online));
    let (state, last_online) = state.map(said).unwrap_or_default();
    Member {
        id: format!("{}/{}", id.namespace, id.name),
        name: id.name.clone(),
        description: device.description.clone(),
        state,
        last_online,
    }
}
