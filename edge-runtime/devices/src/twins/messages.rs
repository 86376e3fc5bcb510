//! MQTT messages of devices and their programs, and the answers to them. Whatever comes is answered or passed over.

use sampan_devices_control::{FromHelper, Named, Text};
use sampan_sys::gather::Gather;

use super::Twins;
use super::announce::member;
use super::body::model_of;
use super::device::kind_in;
use super::documents::{self, DeviceState, Document, Membership, Refusal, StateResult, TwinMap, TwinResult};
use super::now::{Now, rfc3339, stamper};
use super::request::{self, Bad};
use super::topics::{self, Topic};
use super::update::{self, Done, Limits, Refused};

/// Most bytes of a message.
const LONGEST: usize = 64 << 10;

impl Twins {
    /// A broker has connected and accepted our subscriptions, or has disconnected.
    pub fn broker(&mut self, now: Now, up: bool) {
        self.broker = Some(up);
        self.fresh.forget();
        self.heard = up || self.listens;
        for device in self.devices.values_mut().filter(|_| !up) {
            device.all_told().for_each(|told| told.live = false);
        }
        if up && self.ready {
            self.announce_all(now);
        } else if !up && !self.listens {
            self.announce_nothing();
        }
    }

    /// Clients may connect to the node itself, from now on.
    pub const fn listens(&mut self) {
        (self.listens, self.heard) = (true, true);
    }

    /// A message. `payload`: none if it was too long to be read. `retained`: the broker had it before we asked.
    pub fn message(&mut self, now: Now, topic: &str, payload: Option<&[u8]>, retained: bool) {
        let Some(topic) = topics::parse(topic) else {
            self.counters.refused += 1;
            return;
        };
        let payload = payload.filter(|payload| payload.len() <= LONGEST);
        match topic {
            Topic::TwinUpdate(id) => self.twin_update(now, &id, payload, retained),
            Topic::StateUpdate(id) => self.state_update(now, &id, payload, retained),
            // The sender of this request has its answer, or is gone.
            Topic::TwinGet(_) | Topic::MembershipGet if retained => {}
            Topic::TwinGet(id) => self.twin_get(now, &id, payload),
            Topic::MembershipGet => self.membership_get(now, payload),
        }
    }

    fn refuse(&mut self, now: Now, topic: String, event_id: &str, code: u16, reason: &str) {
        self.counters.refused += 1;
        let refusal = Refusal { event_id, timestamp: now.wall, code, reason };
        self.publish(topic, documents::text(&refusal));
    }

    fn not_here(&mut self, now: Now, topic: String, event_id: &str, id: &Named) {
        let reason = format!("no device {}/{} is bound to this node", id.namespace, id.name);
        self.refuse(now, topic, event_id, 404, &reason);
    }

    /// Parses the message; an error is the answer to a malformed one.
    fn read<T>(
        &mut self,
        now: Now,
        topic: &str,
        payload: Option<&[u8]>,
        read: impl Fn(&[u8]) -> Result<T, Bad>,
    ) -> Option<T> {
        let Some(payload) = payload else {
            self.refuse(now, topic.to_owned(), "", 413, &format!("the message is longer than {LONGEST} bytes"));
            return None;
        };
        let Bad { event_id, why } = match read(payload) {
            Ok(read) => return Some(read),
            Err(bad) => bad,
        };
        self.refuse(now, topic.to_owned(), &event_id, 400, &why);
        None
    }

    fn twin_update(&mut self, now: Now, id: &Named, payload: Option<&[u8]>, retained: bool) {
        let topic = topics::device(id, "twin/update/result");
        let Some(mut asked) = self.read(now, &topic, payload, request::update) else { return };
        let Some(device) = self.devices.get_mut(id) else { return self.not_here(now, topic, &asked.event_id, id) };
        if retained {
            // A retained message has an unknown age. It counts where no newer value exists; its desired values may be
            // outdated.
            asked.twin.retain(|name, change| {
                let Some(change) = change else { return false };
                change.expected = None;
                // The stored value is newer, or unknown; a value from before the broker was away may be older.
                let newer = device.properties.get(name).is_none_or(|property| match property.told.heard {
                    true => !property.told.live,
                    false => property.reported.is_none(),
                });
                change.actual.is_some() && newer
            });
            if asked.twin.is_empty() {
                return;
            }
        }
        let model = self.models.get(&model_of(id, &device.model));
        let asks_extra = asked.twin.keys().any(|name| device.properties.get(name).is_none_or(|held| !held.in_spec));
        let extras = if asks_extra { self.devices.values().map(|device| device.extras).sum() } else { 0 };
        let limits = Limits { model, check: self.check, extras };
        let Some(device) = self.devices.get_mut(id) else { return };
        if let Err(Refused { code, reason }) = update::check(device, &asked.twin, &limits) {
            return self.refuse(now, topic, &asked.event_id, code, &reason);
        }
        let done = update::apply(device, asked.twin, model, stamper(now, self.clock_set));
        let event_id = asked.event_id;
        self.updated(now, id, &event_id, done, Some(topic));
    }

    /// Applies the consequences of an update. `result`: the topic of the answer.
    pub(super) fn updated(&mut self, now: Now, id: &Named, event_id: &str, done: Done, result: Option<String>) {
        let Some(device) = self.devices.get_mut(id) else { return };
        self.counters.reports_in += done.reports;
        self.counters.coalesced += done.coalesced;
        self.changed.insert(id.clone());
        if done.news {
            self.due.changed(&mut device.waiting, now.mono, done.wishes);
        } else if done.again {
            self.due.again(&mut device.waiting, now.mono);
        }
        if done.wishes {
            self.keep.soon(&mut device.unkept, now.mono);
            self.mappers.touch(id);
        }
        device.unkept.any |= done.news || done.extra.is_some() || done.cleared;
        device.unkept.times = true;
        if self.heard && device.differs() {
            self.announcements.delta(id, &mut device.pending, now.mono);
        }
        if let Some(name) = done.extra.filter(|_| self.daemon && !device.extras_told) {
            device.extras_told = true;
            let uid = device.uid.to_string();
            self.extra_event(id, uid, &name);
        }
        let timestamp = now.wall;
        if let Some(topic) = result {
            self.publish(topic, documents::text(&TwinResult { event_id, timestamp, twin: &done.result }));
        }
        let document = Document { event_id, timestamp, twin: &done.steps };
        self.publish(topics::device(id, "twin/update/document"), documents::text(&document));
    }

    fn extra_event(&mut self, id: &Named, uid: String, name: &str) {
        let shown: String = name.chars().take(64).collect();
        self.outputs.push(super::Output::Tell(FromHelper::Event {
            namespace: id.namespace.to_string(),
            name: id.name.to_string(),
            uid,
            warning: true,
            reason: "PropertyNotInDevice".to_owned(),
            message: format!("property {shown:?} was reported, but is not in spec.properties: it stays on the node"),
        }));
    }

    fn twin_get(&mut self, now: Now, id: &Named, payload: Option<&[u8]>) {
        let topic = topics::device(id, "twin/get/result");
        let Some((event_id, _)) = self.read(now, &topic, payload, request::object) else { return };
        let Some(device) = self.devices.get(id) else { return self.not_here(now, topic, &event_id, id) };
        let model = self.models.get(&model_of(id, &device.model));
        let twins = device.properties.iter();
        let twin: TwinMap =
            twins.map(|(name, property)| (name.clone(), Some(property.twin(kind_in(model, name))))).into_map();
        let result = documents::text(&TwinResult { event_id: &event_id, timestamp: now.wall, twin: &twin });
        self.publish(topic, result);
    }

    fn state_update(&mut self, now: Now, id: &Named, payload: Option<&[u8]>, retained: bool) {
        let topic = topics::device(id, "state/update/result");
        let Some((event_id, state)) = self.read(now, &topic, payload, request::state) else { return };
        let Some(device) = self.devices.get_mut(id) else { return self.not_here(now, topic, &event_id, id) };
        let newer = device.state.as_ref().is_none_or(|state| state.told.heard && !state.told.live);
        if retained && !newer {
            return;
        }
        self.state(now, id, state);
    }

    /// The device reports its state, one of [`STATES`](request::STATES).
    pub(super) fn state(&mut self, now: Now, id: &Named, state: Text) {
        let Some(device) = self.devices.get_mut(id) else { return };
        let held = device.state.get_or_insert_default();
        let news = held.name != state;
        let waits = held.told.is_due();
        self.counters.coalesced += u64::from(news && waits);
        if matches!(state.as_str(), "ok" | "online") {
            held.last_online = now.wall;
        }
        // A stored value may be older than the bridge's.
        if news || !held.told.heard {
            held.at = if news { now.wall } else { held.at };
            held.told.changed();
            self.due.changed(&mut device.waiting, now.mono, true);
        } else {
            self.due.again(&mut device.waiting, now.mono);
        }
        (held.told.heard, held.told.live) = (true, true);
        held.name.clone_from(&state);
        device.unkept.any |= news;
        device.unkept.times = true;
        self.counters.reports_in += 1;
        self.changed.insert(id.clone());
        let last_online = rfc3339(held.last_online);
        let event_id = self.ids.next();
        let device = DeviceState { name: &id.name, state: &state, last_online };
        let result = StateResult { event_id: &event_id, timestamp: now.wall, device };
        self.publish(topics::device(id, "state/update/result"), documents::text(&result));
    }

    fn membership_get(&mut self, now: Now, payload: Option<&[u8]>) {
        let topic = topics::node(&self.node, "get/result");
        let Some((event_id, _)) = self.read(now, &topic, payload, request::object) else { return };
        let devices = self.devices.iter().map(|(id, device)| member(id, device, true)).collect();
        let result = documents::text(&Membership { event_id: &event_id, timestamp: now.wall, devices });
        self.publish(topic, result);
    }
}
