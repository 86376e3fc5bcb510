//! The last changes of reported values, if the Device object asks for them: a number for each property, and a limit in
//! bytes for all devices together. In memory, and in rows that are written together with reported values. Knows no
//! clock.
//!
//! | row | record |
//! |---|---|
//! | `history/UID/PROPERTY` | JSON: `[[milliseconds since 1970, value, 1 if the clock was not set], …]`, oldest first |

use std::collections::{BTreeMap, VecDeque};

use sampan_devices_control::{Named, Row};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::now::Stamped;

/// Wanted number of changes of each property; without it, or with 0, no history is kept.
pub(super) const ANNOTATION: &str = "sampan.dev/history";
/// Most changes of one property.
pub(super) const MOST: usize = 1_000;
/// Bytes of all devices together; each has an equal part of it.
pub(super) const BYTES: usize = 256 << 10;
/// Bytes of one property: with its row a line has less than 64 KiB.
const BYTES_OF_PROPERTY: usize = 48 << 10;
/// Size of a change beside its value, in memory and in a row, and size of a property.
const CHANGE: usize = 80;
const PROPERTY: usize = 96;

/// The number that an object requests.
///
/// # Errors
/// The malformed value, shortened.
pub(super) fn asked(object: &Value) -> Result<usize, String> {
    let asked = &object["metadata"]["annotations"][ANNOTATION];
    let number = match asked {
        Value::Null => return Ok(0),
        asked => asked.as_str().and_then(|text| text.parse().ok()),
    };
    number.filter(|number| *number <= MOST).ok_or_else(|| match asked {
        Value::String(text) => text.chars().take(64).collect(),
        other => other.to_string().chars().take(64).collect(),
    })
}

/// How the names of all rows of a device begin.
pub(super) fn rows_of(uid: &str) -> String {
    format!("history/{uid}/")
}

/// What concerns the histories of all devices.
#[derive(Debug, Default)]
pub(super) struct Histories {
    /// Another number of devices has one than when their parts were last made equal.
    pub(super) unequal: bool,
    /// Malformed annotation values that were reported.
    pub(super) refused: BTreeMap<Named, String>,
}

/// History of one device.
#[derive(Debug)]
pub(super) struct History {
    most: usize,
    share: usize,
    bytes: usize,
    properties: BTreeMap<Box<str>, Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    list: VecDeque<Stamped>,
    bytes: usize,
    /// The row that is kept is not this.
    unkept: bool,
}

/// A change in the form of a row.
#[derive(Serialize, Deserialize)]
struct Change<'a>(u64, std::borrow::Cow<'a, str>, #[serde(default)] u8);

/// Size of a change: the larger one of memory and a line of JSON in JSON.
fn weight(value: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => 4,
        0..0x20 => 7,
        _ => 1,
    };
    CHANGE + value.bytes().map(escaped).sum::<usize>()
}

impl Changes {
    fn push(&mut self, change: Stamped) {
        self.bytes += weight(&change.value);
        if self.list.len() == self.list.capacity() {
            // Not twice the room: there may be many lists.
            self.list.reserve_exact(self.list.len() / 4 + 1);
        }
        self.list.push_back(change);
        self.unkept = true;
    }

    /// The oldest. Bytes that are free now.
    fn pop(&mut self) -> usize {
        let freed = self.list.pop_front().map_or(0, |change| weight(&change.value));
        self.bytes -= freed;
        self.unkept = true;
        freed
    }
}

impl History {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, share: BYTES, bytes: 0, properties: BTreeMap::new() }
    }

    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// How many changes of each property are wanted now, and the bytes that the device may have.
    pub(super) fn limit(&mut self, most: usize, share: usize) {
        if (most, share) != (self.most, self.share) {
            (self.most, self.share) = (most, share);
            self.fit();
        }
    }

    /// A value was reported.
    pub(super) fn push(&mut self, property: &str, value: &Stamped) {
        if !self.properties.contains_key(property) {
            self.bytes += PROPERTY + property.len();
        }
        let changes = self.properties.entry(property.into()).or_default();
        if changes.list.back().is_some_and(|last| last.value == value.value) {
            return;
        }
        let before = changes.bytes;
        changes.push(value.clone());
        self.bytes += changes.bytes - before;
        self.fit();
    }

    /// Drops the oldest of whatever is too much: where the device has too much, of the property that has most.
    fn fit(&mut self) {
        for changes in self.properties.values_mut() {
            while changes.list.len() > self.most || changes.bytes > BYTES_OF_PROPERTY {
                self.bytes -= changes.pop();
            }
        }
        while self.bytes > self.share {
            let largest = self.properties.values_mut().max_by_key(|changes| changes.bytes);
            let Some(largest) = largest.filter(|changes| !changes.list.is_empty()) else { return };
            self.bytes -= largest.pop();
        }
    }

    /// Removes properties for which `holds` is false. Returns their names.
    pub(super) fn retain(&mut self, holds: impl Fn(&str) -> bool) -> Vec<Box<str>> {
        let gone: Vec<Box<str>> = self.properties.keys().filter(|name| !holds(name)).cloned().collect();
        for name in &gone {
            if let Some(changes) = self.properties.remove(name) {
                self.bytes -= changes.bytes + PROPERTY + name.len();
            }
        }
        gone
    }

    /// The stored state is unknown now.
    pub(super) fn forgotten(&mut self) {
        self.properties.values_mut().for_each(|changes| changes.unkept = true);
    }

    /// Returns unsaved changes as rows of the device with this uid, and marks them as saved.
    pub(super) fn rows<'a>(&'a mut self, uid: &str) -> impl Iterator<Item = Row> + use<'a> {
        let name_of = rows_of(uid);
        self.properties.iter_mut().filter(|(_, changes)| changes.unkept).map(move |(name, changes)| {
            changes.unkept = false;
            let one = |held: &'a Stamped| Change(held.at, (&*held.value).into(), held.unsynchronized.into());
            let all: Vec<Change<'a>> = changes.list.iter().map(one).collect();
            let record = if all.is_empty() { String::new() } else { serde_json::to_string(&all).unwrap_or_default() };
            Row { uid: format!("{name_of}{name}"), record }
        })
    }

    /// Restores the stored changes of a property of which this process knows nothing; a malformed record is ignored.
    pub(super) fn restore(&mut self, property: &str, record: &str) {
        let kept: Vec<Change<'_>> = serde_json::from_str(record).unwrap_or_default();
        if self.properties.contains_key(property) || kept.is_empty() {
            return;
        }
        let mut changes = Changes::default();
        for Change(at, value, unset) in kept {
            changes.push(Stamped { value: value.as_ref().into(), at, unsynchronized: unset > 0 });
        }
        changes.unkept = false;
        self.bytes += changes.bytes + PROPERTY + property.len();
        self.properties.insert(property.into(), changes);
        self.fit();
    }

    /// Changes of this property, oldest first.
    pub(super) fn of(&self, property: &str) -> impl Iterator<Item = &Stamped> {
        self.properties.get(property).into_iter().flat_map(|changes| &changes.list)
    }
}

#[cfg(test)]
mod tests;
