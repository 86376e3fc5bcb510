//! Questions and wishes of people on the device. Knows no client.

use std::collections::BTreeMap;

use sampan_devices_control::{Named, Text};
use serde::Serialize;
use serde_json::Value;

use super::Twins;
use super::body::model_of;
use super::device::{Device, Property, kind_in};
use super::now::{Now, Stamped, rfc3339, stamper};
use super::update::{self, Limits, Refused};

/// A device as people see it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: String,
    model: &'a str,
    /// Empty before the device has said anything.
    state: &'a str,
    last_online: String,
    properties: Vec<ShownProperty<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownProperty<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    access: &'a str,
    desired: Option<ShownValue<'a>>,
    local: Option<ShownValue<'a>>,
    observed: Option<ShownValue<'a>>,
    reported: Option<ShownValue<'a>>,
    /// The bridge has the newest of it.
    told: bool,
    /// Not in the Device object, so it is not reported to the bridge.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    extra: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownValue<'a> {
    value: &'a str,
    at_ms: u64,
}

fn shown(held: &Stamped) -> Option<ShownValue<'_>> {
    Some(ShownValue { value: &held.value, at_ms: held.at })
}

impl Twins {
    /// All devices, or one, as JSON: a list.
    ///
    /// # Errors
    /// It is not here.
    pub fn get(&self, which: Option<&Named>) -> Result<Value, String> {
        let devices: Vec<Shown<'_>> = match which {
            Some(id) => vec![self.shown(id, self.devices.get(id).ok_or_else(|| not_here(id))?)],
            None => self.devices.iter().map(|(id, device)| self.shown(id, device)).collect(),
        };
        serde_json::to_value(devices).map_err(|error| error.to_string())
    }

    fn shown<'a>(&'a self, id: &'a Named, device: &'a Device) -> Shown<'a> {
        let model = self.models.get(&model_of(id, &device.model));
        let property = |name: &'a Text, property: &'a Property| ShownProperty {
            name,
            kind: property.kind(kind_in(model, name)),
            access: model.and_then(|model| model.rules.get(name)).map_or("", |rule| &rule.access),
            desired: property
                .desired()
                .and_then(|desired| shown(&desired.stamped))
                .filter(|desired| !desired.value.is_empty()),
            local: property.local().and_then(|local| shown(&local.stamped)),
            observed: property.observed().and_then(shown),
            reported: property.reported.as_ref().and_then(shown),
            told: property.in_spec && !property.told.is_due(),
            extra: !property.in_spec,
        };
        Shown {
            namespace: &id.namespace,
            name: &id.name,
            uid: device.uid.to_string(),
            model: &device.model,
            state: device.state.as_ref().map_or("", |state| &state.name),
            last_online: device.state.as_ref().map(|state| rfc3339(state.last_online)).unwrap_or_default(),
            properties: device.properties.iter().map(|(name, held)| property(name, held)).collect(),
        }
    }

    /// Sets a desired value until the cloud sets another one; an empty value removes the local one. Returns the device.
    ///
    /// # Errors
    /// The property does not exist, or the value does not fit.
    pub fn set(&mut self, now: Now, id: &Named, property: &str, value: &str) -> Result<Value, String> {
        let device = self.devices.get_mut(id).ok_or_else(|| not_here(id))?;
        let model = self.models.get(&model_of(id, &device.model));
        let limits = Limits { model, check: self.check && !value.is_empty(), extras: 0 };
        update::check_value(&limits, property, value).map_err(|Refused { reason, .. }| reason)?;
        let held = device.properties.get_mut(property).filter(|held| held.in_spec);
        let held = held.ok_or_else(|| format!("the device has no property {property:?}"))?;
        let (last, before) = (held.twin(kind_in(model, property)), held.wanted().cloned());
        let stamp = stamper(now, self.clock_set);
        held.want(stamp(value.into()));
        let mut news = !value.is_empty() && held.observe(stamp(value.into()));
        news |= held.observe_echo(&stamp);
        let changed = before.map(|before| before.value) != held.wanted().map(|wanted| wanted.value.clone());
        if news {
            self.due.changed(&mut device.waiting, now.mono, true);
        }
        self.keep.soon(&mut device.unkept, now.mono);
        self.mappers.touch(id);
        if changed && self.heard {
            let how = BTreeMap::from([(property.into(), last)]);
            self.announcements.changed(id, &mut device.pending, now.mono, how);
        }
        self.changed.insert(id.clone());
        self.get(Some(id))
    }
}

pub(super) fn not_here(Named { namespace, name }: &Named) -> String {
    format!("no device {namespace}/{name} is bound to this node")
}
