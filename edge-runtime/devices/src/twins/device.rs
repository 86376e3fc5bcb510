//! One device: its properties and state, and how news changes them. Does not know sources or recipients.

use std::collections::BTreeMap;

use edge_protocol::message::{DeviceReport, DeviceState, TwinReport, TwinValue};
use litemap::LiteMap;
use sampan_devices_control::{Named, Text};
use serde::{Deserialize, Serialize};

use super::body::{Body, Model};
use super::documents::{Kind, Time, Twin, Valued};
use super::history::History;
use super::keep::Unkept;
use super::mappers::Packed;
use super::now::{Stamped, rfc3339};
use super::uid::Uid;
use super::waiting::{Pending, Waiting};

/// A desired value and which one it is: the count of the values that the cloud has wanted of this property.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wish {
    #[serde(flatten)]
    pub(super) stamped: Stamped,
    pub(super) generation: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Property {
    /// Named by the Device object. Others are known only here, and are not reported.
    pub(super) in_spec: bool,
    /// Its type, if a source other than the model names it.
    pub(super) hint: Text,
    /// `None` if it never had a desired value.
    pub(super) wishes: Option<Box<Wishes>>,
    pub(super) reported: Option<Stamped>,
    pub(super) told: Told,
}

/// Desired values of a property, and which of them its device has received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// The cloud's; empty for none.
    pub(super) desired: Wish,
    /// Value desired by this node; valid while the generation is that of `desired`. Few devices have one.
    pub(super) local: Option<Box<Wish>>,
    pub(super) observed: Option<Box<Stamped>>,
}

/// Which state of a changing value the bridge has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// Number of changes; of those in the batch that is being sent; of those that the bridge has.
    pub(super) n: u32,
    pub(super) sent: u32,
    pub(super) acked: u32,
    /// The device has reported it to this process. A stored value may be older than the bridge's.
    pub(super) heard: bool,
    /// Received since the broker was last connected.
    pub(super) live: bool,
    /// The last report before it was kept, where it was.
    pub(super) kept_seq: u64,
}

impl Told {
    pub(super) const fn is_due(&self) -> bool {
        self.n != self.acked
    }

    pub(super) const fn changed(&mut self) {
        self.n = self.n.wrapping_add(1);
    }
}

/// By name. Sorted lists: most devices have few properties, and a tree reserves room for eleven.
pub(super) type Properties = LiteMap<Text, Property>;

impl Property {
    /// The desired value, if any.
    pub(super) fn wanted(&self) -> Option<&Stamped> {
        let Wishes { desired, local, .. } = self.wishes.as_deref()?;
        let local = local.as_deref().filter(|local| local.generation == desired.generation);
        Some(&local.unwrap_or(desired).stamped).filter(|wish| !wish.value.is_empty())
    }

    /// The wanted value if the device does not report it.
    pub(super) fn delta(&self) -> Option<&Text> {
        let wanted = self.wanted()?;
        self.reported.as_ref().is_none_or(|reported| reported.value != wanted.value).then_some(&wanted.value)
    }

    /// A value of the device. Whether it is another one than before.
    pub(super) fn report(&mut self, value: Stamped) -> bool {
        let same = self.reported.as_ref().is_some_and(|held| held.value == value.value);
        let news = !same || !self.told.heard;
        (self.told.heard, self.told.live) = (true, true);
        self.reported = Some(value);
        if news {
            self.told.changed();
        }
        news
    }

    /// The device has observed this desired value. Returns whether that is a change.
    pub(super) fn observe(&mut self, value: Stamped) -> bool {
        let news = self.observed().is_none_or(|held| held.value != value.value);
        if news {
            self.wishes.get_or_insert_default().observed = Some(Box::new(value));
            self.told.changed();
            // The report has both values, but one of them was not stored.
            self.told.kept_seq = 0;
        }
        news
    }

    /// Marks the desired value as observed if the device reports it. Returns whether that is a change.
    pub(super) fn observe_echo(&mut self, stamp: impl FnOnce(Text) -> Stamped) -> bool {
        match (self.wanted(), &self.reported) {
            (Some(wanted), Some(reported)) if wanted.value == reported.value => {
                let value = wanted.value.clone();
                self.observe(stamp(value))
            }
            _ => false,
        }
    }

    /// Sets a local desired value, valid until the cloud sets another; empty means the cloud's value.
    pub(super) fn want(&mut self, value: Stamped) {
        if value.value.is_empty() {
            self.wishes.iter_mut().for_each(|wishes| wishes.local = None);
            return;
        }
        let wishes = self.wishes.get_or_insert_default();
        wishes.local = Some(Box::new(Wish { stamped: value, generation: wishes.desired.generation }));
    }

    /// What the cloud wants. Whether it is another value than before.
    pub(super) fn desire(&mut self, value: Stamped) -> bool {
        if self.desired().map_or("", |desired| &desired.stamped.value) == value.value {
            return false;
        }
        let wishes = self.wishes.get_or_insert_default();
        wishes.desired = Wish { stamped: value, generation: wishes.desired.generation + 1 };
        wishes.local = None;
        true
    }

    pub(super) fn desired(&self) -> Option<&Wish> {
        self.wishes.as_deref().map(|wishes| &wishes.desired)
    }

    pub(super) fn local(&self) -> Option<&Wish> {
        self.wishes.as_deref()?.local.as_deref()
    }

    pub(super) fn observed(&self) -> Option<&Stamped> {
        self.wishes.as_deref()?.observed.as_deref()
    }

    /// Size of values from the device or from local clients, in bytes.
    pub(super) fn held(&self) -> usize {
        let local = self.local().map(|local| &local.stamped);
        [local, self.observed(), self.reported.as_ref()].into_iter().flatten().map(|held| held.value.len()).sum()
    }
}

/// The type of a property.
pub(super) fn kind_in<'a>(model: Option<&'a Model>, property: &str) -> Option<&'a str> {
    model.and_then(|model| model.rules.get(property)).map(|rule| rule.kind.as_str())
}

/// State as the device reports it.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Never empty.
    pub(super) name: Text,
    /// Milliseconds since 1970; 0 for never.
    pub(super) last_online: u64,
    /// Time since which it is so; 0 if unknown.
    pub(super) at: u64,
    pub(super) told: Told,
}

/// Changes by a newer object.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Properties of which another value is wanted, and how they were.
    pub(super) changed: BTreeMap<Text, Twin>,
    /// A local desired value is void.
    pub(super) voided: bool,
}

#[derive(Debug, Default)]
pub(super) struct Device {
    pub(super) uid: Uid,
    pub(super) model: Text,
    pub(super) description: Text,
    pub(super) properties: Properties,
    /// What of its spec matters to mappers, JSON.
    pub(super) spec: Option<Packed>,
    /// `None` before its first message; most devices never send one.
    pub(super) state: Option<Box<State>>,
    /// Number of the last report.
    pub(super) seq: u64,
    /// Named in the present round of the daemon's objects.
    pub(super) said: bool,
    /// The stored state has been restored, or does not exist.
    pub(super) loaded: bool,
    /// Bytes held for properties that the Device object does not have.
    pub(super) extras: usize,
    /// An event has reported such properties.
    pub(super) extras_told: bool,
    pub(super) waiting: Waiting,
    pub(super) unkept: Unkept,
    /// Few have any.
    pub(super) pending: Option<Box<Pending>>,
    /// `None` unless its object requests a history.
    pub(super) history: Option<Box<History>>,
}

impl Device {
    /// Takes over the object.
    pub(super) fn take(&mut self, body: Body, model: Option<&Model>, stamp: impl Fn(Text) -> Stamped) -> Taken {
        let mut taken = Taken::default();
        self.model = body.model;
        self.description = body.description;
        self.properties.retain(|name, property| !property.in_spec || body.properties.contains_key(&**name));
        for (name, wanted) in body.properties {
            let property = self.properties.entry(name.clone()).or_default();
            property.in_spec = true;
            if property.hint.is_empty() {
                property.hint = wanted.kind;
            }
            let before = property.twin(kind_in(model, &name));
            let (last, local) = (property.wanted().map(|wanted| wanted.value.clone()), property.local().is_some());
            if property.desire(stamp(wanted.value)) {
                taken.voided |= local;
                if last.as_ref() != property.wanted().map(|wanted| &wanted.value) {
                    taken.changed.insert(name, before);
                }
            }
        }
        self.extras = self.extra_bytes();
        // There are thousands of such lists, and room for more is seldom used.
        let mut properties = std::mem::take(&mut self.properties).into_tuple_vec();
        properties.shrink_to_fit();
        self.properties = Properties::from_sorted_store_unchecked(properties);
        taken
    }

    /// Every property that is in need of a change.
    pub(super) fn differs(&self) -> bool {
        self.properties.values().any(|property| property.delta().is_some())
    }

    pub(super) fn is_due(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.told.is_due())
            || self.properties.values().any(|property| property.in_spec && property.told.is_due())
    }

    pub(super) fn extra_bytes(&self) -> usize {
        let extras = self.properties.iter().filter(|(_, property)| !property.in_spec);
        extras.map(|(name, property)| name.len() + property.held() + 64).sum()
    }

    /// The report of everything that is due, and marks it as in progress. `seq` is the last number of any device; the
    /// clock counts if it is higher. So the number also rises for a device that was away, and over a restart of which
    /// no record has the last number.
    pub(super) fn report(&mut self, id: &Named, model: Option<&Model>, seq: u64) -> DeviceReport {
        self.seq = self.seq.max(seq) + 1;
        self.state.iter_mut().for_each(|state| state.told.sent = state.told.n);
        let mut twins = Vec::new();
        for (name, property) in self.properties.iter_mut().filter(|(_, property)| property.in_spec) {
            property.told.sent = property.told.n;
            let kind = property.kind(kind_in(model, name));
            // The bridge keeps omitted values, and has this one or a newer one.
            if !property.told.heard && !property.told.is_due() {
                continue;
            }
            let kept = !property.told.heard;
            let value = |held: &Stamped| TwinValue {
                kept,
                kept_seq: if kept { property.told.kept_seq } else { 0 },
                value: held.value.to_string(),
                at_ms: held.at,
                kind: kind.to_owned(),
                unsynchronized: held.unsynchronized,
            };
            let (reported, observed) = (property.reported.as_ref().map(value), property.observed().map(value));
            if reported.is_some() || observed.is_some() {
                twins.push(TwinReport { property: name.to_string(), reported, observed });
            }
        }
        let state = self.state.as_ref().filter(|state| state.told.heard || state.told.is_due());
        let state = state.map(|state| DeviceState {
            state: state.name.to_string(),
            last_online: rfc3339(state.last_online),
            at_ms: state.at,
            kept: !state.told.heard,
        });
        let (namespace, name) = (id.namespace.to_string(), id.name.to_string());
        DeviceReport { namespace, name, uid: self.uid.to_string(), seq: self.seq, state, twins }
    }

    /// The bridge has what was under way.
    pub(super) fn acked(&mut self) {
        self.all_told().for_each(|told| told.acked = told.sent);
    }

    /// All marks of its properties and its state.
    pub(super) fn all_told(&mut self) -> impl Iterator<Item = &mut Told> {
        let state = self.state.iter_mut().map(|state| &mut state.told);
        self.properties.iter_mut().map(|(_, property)| &mut property.told).chain(state)
    }

    /// About how many bytes a report or a record of it takes.
    pub(super) fn weight(&self) -> usize {
        let observed = |property: &Property| property.observed().map_or(0, |held| held.value.len());
        let twins =
            self.properties.iter().map(|(name, property)| name.len() + property.held() + observed(property) + 96);
        200 + twins.sum::<usize>()
    }
}

impl Property {
    /// The model's type wins.
    pub(super) fn kind<'a>(&'a self, model: Option<&'a str>) -> &'a str {
        model.filter(|kind| !kind.is_empty()).unwrap_or(&self.hint)
    }

    /// The property in MQTT's form.
    pub(super) fn twin(&self, model: Option<&str>) -> Twin {
        let valued = |held: &Stamped| Valued { value: held.value.clone(), metadata: Time { timestamp: held.at } };
        let kind = match self.kind(model) {
            "" => "string",
            kind => kind,
        };
        Twin {
            expected: self.wanted().map(valued),
            actual: self.reported.as_ref().map(valued),
            optional: true,
            metadata: Some(Kind { kind: kind.into() }),
        }
    }
}
