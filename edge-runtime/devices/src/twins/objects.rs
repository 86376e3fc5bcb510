//! Messages of the daemon: created, changed and deleted objects, and records. They arrive in any order, and may repeat.
//! Does not know MQTT messages.

use sampan_devices_control::{FromHelper, Kind, Named, Row};
use serde_json::Value;

use super::announce::member;
use super::body::{Model, model_of};
use super::device::{Device, Taken, kind_in};
use super::mappers::Packed;
use super::now::{Now, stamper};
use super::uid::Uid;
use super::{Output, Twins, body, histories, mappers, record};

/// Time after which, with a link, all expected devices have come, in milliseconds.
const FORGET: u64 = 600_000;
/// Rows to be forgotten in one line.
const ROWS: usize = 1_000;

impl Twins {
    /// A daemon is there, and begins to tell what it holds.
    pub fn daemon_came(&mut self, now: Now) {
        self.daemon_went(now);
        self.daemon = true;
        self.records.clear();
        self.mappers.rows.told.clear();
        for device in self.devices.values_mut() {
            device.said = false;
            // It is unknown how much an earlier daemon has stored.
            device.unkept.any = true;
            device.history.iter_mut().for_each(|history| history.forgotten());
        }
        self.models.values_mut().for_each(|model| model.said = false);
        // It knows no counters.
        self.counted = Default::default();
    }

    /// The daemon is gone: there is nothing to report to, or to store with.
    pub fn daemon_went(&mut self, now: Now) {
        self.daemon = false;
        self.pods_unknown();
        self.link(now, false, self.clock_set);
    }

    /// The newest state of an object.
    pub fn object(&mut self, now: Now, kind: Kind, id: Named, uid: String, object: &Value) {
        match kind {
            Kind::DeviceModel => {
                let mut model = body::model(uid, object);
                model.spec = if self.mappers.are_on() { mappers::of_model(object) } else { None };
                self.model(now, id, model);
            }
            Kind::Device => self.device(now, id, Uid::from(&*uid), object),
            Kind::Rule => {}
        }
    }

    /// The API shows the type of a value, so a value that was reported before its model arrived is reported again.
    fn model(&mut self, now: Now, id: Named, model: Model) {
        let old = self.models.insert(id.clone(), model);
        let new = self.models.get(&id);
        let for_mappers = new.map(|new| &new.spec) != old.as_ref().map(|old| &old.spec);
        let is_of = |user: &Named, device: &Device| user.namespace == id.namespace && device.model == id.name;
        let users = self.devices.iter_mut().filter(|(user, device)| is_of(user, device));
        for (user, device) in users {
            if for_mappers {
                self.mappers.touch(user);
            }
            let mut news = false;
            for (name, property) in device.properties.iter_mut().filter(|(_, property)| property.in_spec) {
                let shown = property.reported.is_some() || property.observed().is_some();
                let other = property.kind(kind_in(old.as_ref(), name)) != property.kind(kind_in(new, name));
                if shown && other {
                    property.told.changed();
                    news = true;
                }
            }
            if news {
                self.due.changed(&mut device.waiting, now.mono, false);
            }
        }
    }

    fn device(&mut self, now: Now, id: Named, uid: Uid, object: &Value) {
        if self.devices.get(&id).is_some_and(|held| held.uid != uid) {
            // Another device of the same name: nothing of the old one is its own.
            self.remove(now, &id);
        }
        let new = || Box::new(Device { uid, loaded: self.ready, ..Device::default() });
        let came = !self.devices.contains_key(&id);
        let device = self.devices.entry(id.clone()).or_insert_with(new);
        device.said = true;
        let spec = if self.mappers.are_on() { mappers::of_device(object) } else { None };
        let read = body::device(object);
        let held = device.spec.as_ref().and_then(Packed::text);
        let for_mappers = came || held.as_deref() != spec.as_deref() || device.model != read.model;
        if for_mappers {
            device.spec = spec.map(|spec| self.mappers.samples.pack(&model_of(&id, &read.model), &spec));
        }
        let model = self.models.get(&model_of(&id, &read.model));
        let stamp = stamper(now, self.clock_set);
        let Taken { changed, voided } = device.take(read, model, &stamp);
        let mut echoes = false;
        for name in changed.keys() {
            echoes |= device.properties.get_mut(name).is_some_and(|property| property.observe_echo(&stamp));
        }
        if voided || echoes {
            self.keep.soon(&mut device.unkept, now.mono);
        }
        // The desired value of the cloud arrives again with the object.
        device.unkept.any |= !changed.is_empty();
        if came || !changed.is_empty() {
            self.changed.insert(id.clone());
        }
        if for_mappers || !changed.is_empty() {
            self.mappers.touch(&id);
        }
        // A device that arrives after its record.
        let record = if self.ready { self.records.remove(&device.uid.to_string()) } else { None };
        if let Some(record) = record.and_then(|text| record::parse(&text)) {
            record.restore(device);
            device.unkept.spilled = device.is_due();
        }
        if device.is_due() {
            self.due.changed(&mut device.waiting, now.mono, echoes);
        }
        if self.ready && came {
            self.fresh.came(&id, self.broker == Some(true), self.listens);
        }
        if self.ready && came && self.heard {
            self.announcements.added(&id, &mut device.pending, now.mono);
        }
        if self.ready && self.heard && !changed.is_empty() {
            self.announcements.changed(&id, &mut device.pending, now.mono, changed);
        }
        self.history_asked(&id, object);
    }

    /// An object is gone.
    pub fn gone(&mut self, now: Now, kind: Kind, id: &Named, uid: &str) {
        match kind {
            Kind::Rule => {}
            Kind::DeviceModel => {
                if self.models.get(id).is_some_and(|model| model.uid == uid) {
                    self.models.remove(id);
                }
            }
            Kind::Device => {
                if self.devices.get(id).is_some_and(|device| device.uid == Uid::from(uid)) {
                    self.remove(now, id);
                }
            }
        }
    }

    fn remove(&mut self, now: Now, id: &Named) {
        let Some(mut device) = self.devices.remove(id) else { return };
        self.changed.insert(id.clone());
        device.spec = None;
        self.history_gone(id, &mut device);
        self.mappers.samples.forget();
        self.mappers.touch(id);
        self.announcements.forget(id, &mut device.pending);
        self.fresh.went(id);
        if self.ready {
            self.membership_updated(now, None, Some(member(id, &device, false)));
        }
    }

    /// Receives a stored record.
    pub fn kept(&mut self, uid: String, record: String) {
        let of_mapper = self.mappers.are_on() && mappers::is_of_mapper(&uid);
        let records = if of_mapper { &mut self.mappers.rows.told } else { &mut self.records };
        records.insert(uid, record);
    }

    /// The daemon has sent all objects.
    pub fn told(&mut self, now: Now) {
        self.models.retain(|_, model| model.said);
        let unsaid: Vec<Named> =
            self.devices.iter().filter(|(_, device)| !device.said).map(|(id, _)| id.clone()).collect();
        unsaid.iter().for_each(|id| self.remove(now, id));

        let mut records = std::mem::take(&mut self.records);
        for device in self.devices.values_mut() {
            histories::restore(&mut records, device);
            let record = records.remove(&device.uid.to_string()).and_then(|text| record::parse(&text));
            if !device.loaded {
                device.loaded = true;
                if let Some(record) = record {
                    record.restore(device);
                    device.unkept.spilled = device.is_due();
                }
                if device.is_due() {
                    self.due.changed(&mut device.waiting, now.mono, false);
                }
            } else if !record.unwrap_or_default().has_wishes_of(device) {
                // A daemon that went may not have written what it was given last.
                self.keep.soon(&mut device.unkept, now.mono);
            }
        }
        // They may belong to devices that arrive later: where the module was off, the bridge sends them later.
        self.records = records;
        self.mappers_told(now);
        self.forget_at.get_or_insert(now.mono + FORGET);
        if !self.ready && self.heard {
            self.announce_all(now);
        }
        self.ready = true;
        self.mappers_ready(now);
        if !self.link {
            self.keep.link_down(now.mono);
        }
    }

    /// Deletes stored records whose devices the bridge did not send.
    pub(super) fn forget(&mut self, now: Now) {
        if !self.reports() || self.forget_at.is_none_or(|at| at > now.mono) {
            return;
        }
        self.forget_at = None;
        let uids = std::mem::take(&mut self.records).into_keys();
        let rows: Vec<Row> = uids.map(|uid| Row { uid, record: String::new() }).collect();
        for rows in rows.chunks(ROWS) {
            self.outputs.push(Output::Tell(FromHelper::Keep { rows: rows.to_vec(), durable: false }));
        }
    }
}
