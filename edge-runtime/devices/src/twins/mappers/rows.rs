//! Stored state of mappers, so that mappers do not notice a restart: a row for each mapper, and one for each device
//! that a mapper holds.
//!
//! | row | record |
//! |---|---|
//! | `mapper/NUMBER` | who it is and which models it holds, JSON |
//! | `mapper/NUMBER/NAMESPACE/NAME` | the hash of the device as it holds it; `-` while RemoveDevice is tried |
//!
//! They are noted at once, where a helper that is killed leaves them to the next one, and written to the store by and by.

use std::collections::BTreeMap;

use sampan_devices_control::{Named, Row};

const PREFIX: &str = "mapper/";
const LEAVING: &str = "-";

/// Owner of a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Of {
    Mapper(u64),
    Device(u64, Named),
}

/// Whether a row is of a mapper; others are of devices.
pub(in super::super) fn is_of_mapper(uid: &str) -> bool {
    uid.starts_with(PREFIX)
}

pub(super) fn of_mapper(number: u64) -> String {
    format!("{PREFIX}{number}")
}

pub(super) fn of_device(number: u64, Named { namespace, name }: &Named) -> String {
    format!("{PREFIX}{number}/{namespace}/{name}")
}

pub(super) fn parse(uid: &str) -> Option<Of> {
    let mut parts = uid.strip_prefix(PREFIX)?.split('/');
    let number = parts.next()?.parse().ok()?;
    match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => Some(Of::Mapper(number)),
        (Some(namespace), Some(name), None) => {
            Some(Of::Device(number, Named { namespace: namespace.into(), name: name.into() }))
        }
        _ => None,
    }
}

/// `hash`: none while RemoveDevice is tried.
pub(super) fn record(hash: Option<u64>) -> String {
    hash.map_or_else(|| LEAVING.to_owned(), |hash| format!("{hash:016x}"))
}

/// The hash of a device that a mapper still holds.
pub(super) fn hash(record: &str) -> Option<u64> {
    u64::from_str_radix(record, 16).ok()
}

/// Rows that are not written yet.
#[derive(Debug, Default)]
pub(in super::super) struct Rows {
    pending: BTreeMap<String, String>,
    /// Those that are not even noted.
    unnoted: BTreeMap<String, String>,
    /// Before anything else is done.
    at_once: bool,
    /// Rows that the daemon has sent in this round.
    pub(in super::super) told: BTreeMap<String, String>,
}

impl Rows {
    pub(super) fn put(&mut self, uid: String, record: String) {
        self.unnoted.insert(uid.clone(), record.clone());
        self.pending.insert(uid, record);
    }

    pub(super) fn put_at_once(&mut self, uid: String, record: String) {
        self.put(uid, record);
        self.at_once = true;
    }

    pub(super) fn at_once(&mut self) {
        self.at_once = true;
    }

    pub(super) fn forget(&mut self, uid: String) {
        self.put(uid, String::new());
    }

    pub(in super::super) const fn is_urgent(&self) -> bool {
        self.at_once
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(in super::super) fn take(&mut self) -> impl Iterator<Item = Row> + use<> {
        self.at_once = false;
        std::mem::take(&mut self.pending).into_iter().map(|(uid, record)| Row { uid, record })
    }

    pub(super) fn take_unnoted(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.unnoted).into_iter().map(|(uid, record)| Row { uid, record }).collect()
    }

    /// Computes the changes from the rows of the daemon to the present ones.
    pub(super) fn differ(&mut self, mut are: BTreeMap<String, String>) {
        for (uid, record) in std::mem::take(&mut self.told) {
            if are.get(&uid) == Some(&record) {
                are.remove(&uid);
            } else {
                are.entry(uid).or_default();
            }
        }
        self.pending = are;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_by_mapper_and_device() {
        let t1 = Named { namespace: "dev".into(), name: "t1".into() };
        for (of, uid) in [(Of::Mapper(7), of_mapper(7)), (Of::Device(7, t1.clone()), of_device(7, &t1))] {
            assert!(is_of_mapper(&uid));
            assert_eq!(parse(&uid), Some(of));
        }
        for strange in ["", "mapper/", "mapper/x", "mapper/7/a", "mapper/7/a/b/c", "7d1f"] {
            assert_eq!(parse(strange), None, "{strange}");
        }
        assert_eq!((hash(&record(Some(255))), hash(&record(None)), hash("")), (Some(255), None, None));
    }

    #[test]
    fn only_changed_rows_are_written() {
        let map = |rows: &[(&str, &str)]| rows.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let mut rows = Rows { told: map(&[("same", "1"), ("other", "1"), ("gone", "1")]), ..Rows::default() };
        rows.differ(map(&[("same", "1"), ("other", "2"), ("new", "3")]));
        let pending: Vec<Row> = rows.take().collect();
        let row = |uid: &str, record: &str| Row { uid: uid.into(), record: record.into() };
        assert_eq!(pending, [row("gone", ""), row("new", "3"), row("other", "2")]);
        assert!(rows.is_empty());
    }
}
