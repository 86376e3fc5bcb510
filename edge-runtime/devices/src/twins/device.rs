//! One device: its properties and state, and how news changes them. Does not know sources or recipients.

mod property;

use std::collections::BTreeMap;

use edge_protocol::message::{DeviceReport, DeviceState, TwinReport, TwinValue};
use sampan_devices_control::{Named, Text};

use super::body::{Body, Model};
use super::documents::Twin;
use super::history::History;
use super::keep::Unkept;
use super::mappers::Packed;
use super::now::{Stamped, rfc3339};
use super::uid::Uid;
use super::waiting::{Pending, Waiting};

pub(super) use self::property::{Properties, Property, Told, Wish, Wishes, kind_in};

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
