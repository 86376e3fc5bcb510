//! Stored record of a device: one JSON text. A field may be added with `#[serde(default)]`; records of older builds are
//! read.

use std::collections::BTreeMap;
use std::ops::Not;

use sampan_devices_control::Text;
use sampan_sys::gather::Gather;
use serde::{Deserialize, Serialize};

use super::device::{Device, Property, State, Told, Wish, Wishes};
use super::now::Stamped;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    seq: u64,
    #[serde(skip_serializing_if = "Text::is_empty")]
    state: Text,
    #[serde(skip_serializing_if = "is_zero")]
    last_online: u64,
    #[serde(skip_serializing_if = "is_zero")]
    state_at: u64,
    #[serde(skip_serializing_if = "Not::not")]
    state_untold: bool,
    twins: BTreeMap<Text, Kept>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kept {
    #[serde(rename = "type", skip_serializing_if = "Text::is_empty")]
    hint: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    desired: Option<Wish>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<Box<Wish>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reported: Option<Stamped>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<Box<Stamped>>,
    #[serde(skip_serializing_if = "Not::not")]
    untold: bool,
    /// Number of the last report before the record's: another process has stored the value, and it was not reported
    /// since.
    #[serde(skip_serializing_if = "is_zero")]
    seq: u64,
    /// Not of the Device object.
    #[serde(skip_serializing_if = "Not::not")]
    extra: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The record of a device; empty if there is nothing to store.
pub(super) fn of(device: &Device) -> String {
    let kept = |property: &Property| Kept {
        hint: if property.in_spec { Text::new() } else { property.hint.clone() },
        desired: property.desired().filter(|desired| **desired != Wish::default()).cloned(),
        local: property.wishes.as_ref().and_then(|wishes| wishes.local.clone()),
        reported: property.reported.clone(),
        observed: property.wishes.as_ref().and_then(|wishes| wishes.observed.clone()),
        untold: property.in_spec && property.told.is_due(),
        seq: if property.told.heard { 0 } else { property.told.kept_seq },
        extra: !property.in_spec,
    };
    let state = device.state.as_deref().cloned().unwrap_or_default();
    let record = Record {
        seq: device.seq,
        state: state.name,
        last_online: state.last_online,
        state_at: state.at,
        state_untold: state.told.is_due(),
        twins: device.properties.iter().map(|(name, property)| (name.clone(), kept(property))).into_map(),
    };
    serde_json::to_string(&record).unwrap_or_default()
}

/// Parses a record; `None` if it is malformed.
pub(super) fn parse(text: &str) -> Option<Record> {
    serde_json::from_str(text).ok()
}

const fn told(untold: bool, kept_seq: u64) -> Told {
    Told { n: 1, sent: 0, acked: if untold { 0 } else { 1 }, heard: false, live: false, kept_seq }
}

impl Record {
    /// Restores values of a device that this process does not have.
    pub(super) fn restore(self, device: &mut Device) {
        device.seq = device.seq.max(self.seq);
        if device.state.is_none() && !self.state.is_empty() {
            device.state = Some(Box::new(State {
                name: self.state,
                last_online: self.last_online,
                at: self.state_at,
                told: told(self.state_untold, self.seq),
            }));
        }
        for (name, kept) in self.twins {
            let property = match (device.properties.get_mut(&name), kept.extra) {
                (Some(property), _) => property,
                (None, true) => device.properties.entry(name).or_default(),
                // The Device object does not have it any more.
                (None, false) => continue,
            };
            kept.restore(property, self.seq);
        }
        device.extras = device.extra_bytes();
    }

    /// Whether the desired values in it are those of the device.
    pub(super) fn has_wishes_of(&self, device: &Device) -> bool {
        let none = Kept::default();
        device.properties.iter().all(|(name, property)| {
            let kept = self.twins.get(name).unwrap_or(&none);
            kept.local.as_deref() == property.local() && kept.observed.as_deref() == property.observed()
        })
    }
}

impl Kept {
    /// `seq`: of the record.
    fn restore(self, property: &mut Property, seq: u64) {
        if property.hint.is_empty() {
            property.hint = self.hint;
        }
        let desired = self.desired.unwrap_or_default();
        let mut wishes = property.wishes.take().unwrap_or_default();
        if wishes.desired.stamped.value == desired.stamped.value {
            wishes.desired = desired;
            wishes.local = self.local.filter(|local| local.generation == wishes.desired.generation);
        } else {
            // The cloud has set another value meanwhile, so the local desired value is void.
            wishes.desired.generation = desired.generation + 1;
        }
        if property.reported.is_none()
            && wishes.observed.is_none()
            && (self.reported.is_some() || self.observed.is_some())
        {
            property.reported = self.reported;
            wishes.observed = self.observed;
            property.told = told(self.untold, if self.seq == 0 { seq } else { self.seq });
        }
        property.wishes = Some(wishes).filter(|wishes| **wishes != Wishes::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_record_is_ignored() {
        for text in ["", "x", "7", "{\"seq\":-1}", "{\"twins\":{\"a\":1}}"] {
            assert!(parse(text).is_none(), "{text}");
        }
        assert!(parse("{\"of\":\"another build\"}").is_some());
    }

    #[test]
    fn changed_desired_value_voids_the_local_one() {
        let stamped = |value: &str| Stamped { value: value.into(), at: 1, unsynchronized: false };
        let mut old = Device::default();
        let led = old.properties.entry("led".into()).or_default();
        led.in_spec = true;
        led.desire(stamped("ON"));
        led.want(stamped("BLINK"));
        led.report(stamped("BLINK"));
        let text = of(&old);
        for (now, wanted) in [("ON", "BLINK"), ("OFF", "OFF")] {
            let mut new = Device::default();
            let led = new.properties.entry("led".into()).or_default();
            led.in_spec = true;
            led.desire(Stamped { value: now.into(), at: 9, unsynchronized: false });
            parse(&text).expect("a record").restore(&mut new);
            let led = new.properties.get("led").expect("it is there");
            assert_eq!(led.wanted().map(|wanted| wanted.value.as_str()), Some(wanted));
            assert_eq!(led.reported, Some(stamped("BLINK")));
            assert!(led.told.is_due() && new.is_due());
        }
    }
}
