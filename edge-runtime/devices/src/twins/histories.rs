//! Histories of all devices: which objects request one, the size of each, rows of removed ones, and queries of people.

use std::collections::BTreeMap;

use sampan_devices_control::{FromHelper, Named, Row};
use serde::Serialize;
use serde_json::Value;

use super::device::Device;
use super::history::{self, ANNOTATION, BYTES, History, MOST};
use super::now::{Stamped, rfc3339_millis};
use super::{Output, Twins};

#[derive(Serialize)]
struct ShownDevice<'a> {
    namespace: &'a str,
    name: &'a str,
    most: usize,
    properties: Vec<ShownProperty<'a>>,
}

#[derive(Serialize)]
struct ShownProperty<'a> {
    name: &'a str,
    changes: Vec<ShownChange<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownChange<'a> {
    value: &'a str,
    at: String,
    at_ms: u64,
    /// The clock was not set then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unsynchronized: bool,
}

fn shown(Stamped { value, at, unsynchronized }: &Stamped) -> ShownChange<'_> {
    ShownChange { value, at: rfc3339_millis(*at), at_ms: *at, unsynchronized: *unsynchronized }
}

impl Twins {
    /// The object of a device requests a history, or none. Restores the stored one.
    pub(super) fn history_asked(&mut self, id: &Named, object: &Value) {
        let asked = history::asked(object);
        let Some(device) = self.devices.get_mut(id) else { return };
        let most = asked.as_ref().copied().unwrap_or(0);
        let mut gone = Vec::new();
        let began = device.history.is_none() && most > 0;
        match &mut device.history {
            Some(history) if most == 0 => {
                gone = history.retain(|_| false);
                device.history = None;
                self.histories.unequal = true;
            }
            Some(history) => {
                let properties = &device.properties;
                gone = history.retain(|name| properties.get(name).is_some_and(|property| property.in_spec));
                history.limit(most, BYTES);
                self.histories.unequal = true;
            }
            None if began => {
                device.history = Some(Box::new(History::new(most)));
                self.histories.unequal = true;
            }
            None => {}
        }
        // Rows may still arrive before the daemon has sent all.
        if began && self.ready {
            restore(&mut self.records, device);
        }
        let uid = device.uid.to_string();
        self.forget_history(&uid, &gone);
        match asked {
            Ok(_) => drop(self.histories.refused.remove(id)),
            Err(wrong) if self.histories.refused.get(id) != Some(&wrong) && self.daemon => {
                self.outputs.push(Output::Tell(FromHelper::Event {
                    namespace: id.namespace.to_string(),
                    name: id.name.to_string(),
                    uid,
                    warning: true,
                    reason: "HistoryRefused".to_owned(),
                    message: format!(
                        "annotation {ANNOTATION}: {wrong:?} is no number from 0 to {MOST}: no history is kept"
                    ),
                }));
                self.histories.refused.insert(id.clone(), wrong);
            }
            Err(_) => {}
        }
    }

    /// A device is gone.
    pub(super) fn history_gone(&mut self, id: &Named, device: &mut Device) {
        self.histories.refused.remove(id);
        if let Some(mut history) = device.history.take() {
            self.histories.unequal = true;
            self.forget_history(&device.uid.to_string(), &history.retain(|_| false));
        }
    }

    fn forget_history(&mut self, uid: &str, properties: &[Box<str>]) {
        if self.daemon && !properties.is_empty() {
            let row = |name: &str| Row { uid: history::rows_of(uid) + name, record: String::new() };
            let rows = properties.iter().map(|name| row(name)).collect();
            self.outputs.push(Output::Tell(FromHelper::Keep { rows, durable: false }));
        }
    }

    /// Each has an equal part of what all may have.
    pub(super) fn share_histories(&mut self) {
        if std::mem::take(&mut self.histories.unequal) {
            let histories = self.devices.values_mut().filter_map(|device| device.history.as_mut());
            let mut histories: Vec<_> = histories.collect();
            let share = BYTES / histories.len().max(1);
            histories.iter_mut().for_each(|history| history.limit(history.most(), share));
        }
    }

    /// The last changes of a device or of one property of it, as JSON.
    ///
    /// # Errors
    /// It is not here, or keeps no history.
    pub fn history(&self, id: &Named, property: Option<&str>) -> Result<Value, String> {
        let Named { namespace, name } = id;
        let device = self.devices.get(id).ok_or_else(|| super::ask::not_here(id))?;
        let Some(history) = &device.history else {
            return Err(format!(
                "device {namespace}/{name} keeps no history: its annotation {ANNOTATION} says of how many changes"
            ));
        };
        if let Some(property) = property.filter(|name| !device.properties.contains_key(*name)) {
            return Err(format!("the device has no property {property:?}"));
        }
        let wanted = device.properties.keys().filter(|name| property.is_none_or(|property| property == *name));
        let property = |name| ShownProperty { name, changes: history.of(name).map(shown).collect() };
        let properties = wanted.map(|name| property(name)).collect();
        let device = ShownDevice { namespace, name, most: history.most(), properties };
        serde_json::to_value(device).map_err(|error| error.to_string())
    }
}

/// Restores the stored changes of a device that has a history now; the rows belong to this device alone.
pub(super) fn restore(records: &mut BTreeMap<String, String>, device: &mut Device) {
    let Some(history) = &mut device.history else { return };
    let prefix = history::rows_of(&device.uid.to_string());
    let is_of = |uid: &&String| uid.starts_with(&prefix);
    let uids: Vec<String> = records.range(prefix.clone()..).map(|(uid, _)| uid).take_while(is_of).cloned().collect();
    for uid in uids {
        let property = &uid[prefix.len()..];
        // The history of a removed property is deleted with the unowned ones.
        if device.properties.get(property).is_some_and(|property| property.in_spec)
            && let Some(record) = records.remove(&uid)
        {
            history.restore(property, &record);
        }
    }
}
