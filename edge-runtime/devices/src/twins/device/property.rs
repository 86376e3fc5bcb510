//! One property of a device: what is wanted of it, what it reports, and what of that the bridge has.

use litemap::LiteMap;
use sampan_devices_control::Text;
use serde::{Deserialize, Serialize};

use crate::twins::body::Model;
use crate::twins::documents::{Kind, Time, Twin, Valued};
use crate::twins::now::Stamped;

/// A desired value and which one it is: the count of the values that the cloud has wanted of this property.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::twins) struct Wish {
    #[serde(flatten)]
    pub(in crate::twins) stamped: Stamped,
    pub(in crate::twins) generation: u64,
}

#[derive(Clone, Debug, Default)]
pub(in crate::twins) struct Property {
    /// Named by the Device object. Others are known only here, and are not reported.
    pub(in crate::twins) in_spec: bool,
    /// Its type, if a source other than the model names it.
    pub(in crate::twins) hint: Text,
    /// `None` if it never had a desired value.
    pub(in crate::twins) wishes: Option<Box<Wishes>>,
    pub(in crate::twins) reported: Option<Stamped>,
    pub(in crate::twins) told: Told,
}

/// Desired values of a property, and which of them its device has received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::twins) struct Wishes {
    /// The cloud's; empty for none.
    pub(in crate::twins) desired: Wish,
    /// Value desired by this node; valid while the generation is that of `desired`. Few devices have one.
    pub(in crate::twins) local: Option<Box<Wish>>,
    pub(in crate::twins) observed: Option<Box<Stamped>>,
}

/// Which state of a changing value the bridge has.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::twins) struct Told {
    /// Number of changes; of those in the batch that is being sent; of those that the bridge has.
    pub(in crate::twins) n: u32,
    pub(in crate::twins) sent: u32,
    pub(in crate::twins) acked: u32,
    /// The device has reported it to this process. A stored value may be older than the bridge's.
    pub(in crate::twins) heard: bool,
    /// Received since the broker was last connected.
    pub(in crate::twins) live: bool,
    /// The last report before it was kept, where it was.
    pub(in crate::twins) kept_seq: u64,
}

impl Told {
    pub(in crate::twins) const fn is_due(&self) -> bool {
        self.n != self.acked
    }

    pub(in crate::twins) const fn changed(&mut self) {
        self.n = self.n.wrapping_add(1);
    }
}

/// By name. Sorted lists: most devices have few properties, and a tree reserves room for eleven.
pub(in crate::twins) type Properties = LiteMap<Text, Property>;

impl Property {
    /// The desired value, if any.
    pub(in crate::twins) fn wanted(&self) -> Option<&Stamped> {
        let Wishes { desired, local, .. } = self.wishes.as_deref()?;
        let local = local.as_deref().filter(|local| local.generation == desired.generation);
        Some(&local.unwrap_or(desired).stamped).filter(|wish| !wish.value.is_empty())
    }

    /// The wanted value if the device does not report it.
    pub(in crate::twins) fn delta(&self) -> Option<&Text> {
        let wanted = self.wanted()?;
        self.reported.as_ref().is_none_or(|reported| reported.value != wanted.value).then_some(&wanted.value)
    }

    /// A value of the device. Whether it is another one than before.
    pub(in crate::twins) fn report(&mut self, value: Stamped) -> bool {
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
    pub(in crate::twins) fn observe(&mut self, value: Stamped) -> bool {
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
    pub(in crate::twins) fn observe_echo(&mut self, stamp: impl FnOnce(Text) -> Stamped) -> bool {
        match (self.wanted(), &self.reported) {
            (Some(wanted), Some(reported)) if wanted.value == reported.value => {
                let value = wanted.value.clone();
                self.observe(stamp(value))
            }
            _ => false,
        }
    }

    /// Sets a local desired value, valid until the cloud sets another; empty means the cloud's value.
    pub(in crate::twins) fn want(&mut self, value: Stamped) {
        if value.value.is_empty() {
            self.wishes.iter_mut().for_each(|wishes| wishes.local = None);
            return;
        }
        let wishes = self.wishes.get_or_insert_default();
        wishes.local = Some(Box::new(Wish { stamped: value, generation: wishes.desired.generation }));
    }

    /// What the cloud wants. Whether it is another value than before.
    pub(in crate::twins) fn desire(&mut self, value: Stamped) -> bool {
        if self.desired().map_or("", |desired| &desired.stamped.value) == value.value {
            return false;
        }
        let wishes = self.wishes.get_or_insert_default();
        wishes.desired = Wish { stamped: value, generation: wishes.desired.generation + 1 };
        wishes.local = None;
        true
    }

    pub(in crate::twins) fn desired(&self) -> Option<&Wish> {
        self.wishes.as_deref().map(|wishes| &wishes.desired)
    }

    pub(in crate::twins) fn local(&self) -> Option<&Wish> {
        self.wishes.as_deref()?.local.as_deref()
    }

    pub(in crate::twins) fn observed(&self) -> Option<&Stamped> {
        self.wishes.as_deref()?.observed.as_deref()
    }

    /// Size of values from the device or from local clients, in bytes.
    pub(in crate::twins) fn held(&self) -> usize {
        let local = self.local().map(|local| &local.stamped);
        [local, self.observed(), self.reported.as_ref()].into_iter().flatten().map(|held| held.value.len()).sum()
    }
}

/// The type of a property.
pub(in crate::twins) fn kind_in<'a>(model: Option<&'a Model>, property: &str) -> Option<&'a str> {
    model.and_then(|model| model.rules.get(property)).map(|rule| rule.kind.as_str())
}

impl Property {
    /// The model's type wins.
    pub(in crate::twins) fn kind<'a>(&'a self, model: Option<&'a str>) -> &'a str {
        model.filter(|kind| !kind.is_empty()).unwrap_or(&self.hint)
    }

    /// The property in MQTT's form.
    pub(in crate::twins) fn twin(&self, model: Option<&str>) -> Twin {
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
