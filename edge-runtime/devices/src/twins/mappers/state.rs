//! What is known of all mappers of this node, and the last calls of each. Decides nothing about devices.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sampan_devices_control::{Named, Settings};
use sampan_sys::gather::Gather;

use super::super::now::{MINUTE, Now};
use super::allowed::Allowed;
use super::mapper::{Info, Mapper};
use super::packed::Samples;
use super::rate::Rate;
use super::rows::{self, Of, Rows};

/// The call to answer, and the answer.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) call: u64,
    pub(super) with_data: bool,
}

/// Event about a device.
pub(super) struct Event {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// All mappers of the node.
#[derive(Debug, Default)]
pub(in super::super) struct Mappers {
    /// Where `dmi.sock` is; none where DMI is off.
    pub(super) folder: Option<PathBuf>,
    pub(super) allowed: Allowed,
    pub(super) all: Vec<Mapper>,
    pub(in super::super) rows: Rows,
    pub(in super::super) samples: Samples,
    /// The stored state has been read.
    pub(super) loaded: bool,
    /// Devices of which something may have changed for a mapper.
    pub(super) touched: BTreeSet<Named>,
    pub(super) unanswered: Vec<(Registration, Info)>,
    /// Number of the last call.
    pub(super) call: u64,
    /// Devices with an event about their problems.
    pub(super) odd: BTreeMap<Named, String>,
    replaced_at: Option<u64>,
    pub(super) rate: Rate,
    /// When the daemon is asked next whether the pods of mappers are still there.
    pub(super) ask_at: u64,
}

impl Mappers {
    pub(in super::super) fn new(settings: &Settings) -> Self {
        let dmi = settings.dmi.as_ref();
        let allowed = dmi.map(Allowed::new).unwrap_or_default();
        Self { folder: dmi.map(|dmi| dmi.folder.clone()), allowed, ..Self::default() }
    }

    /// Whether there may be mappers at all.
    pub(in super::super) const fn are_on(&self) -> bool {
        self.folder.is_some()
    }

    pub(in super::super) fn touch(&mut self, id: &Named) {
        if self.are_on() {
            self.touched.insert(id.clone());
        }
    }

    pub(in super::super) fn wake(&self) -> Option<u64> {
        let ask = self.all.iter().any(|mapper| !mapper.info.pod.is_empty()).then_some(self.ask_at);
        self.all.iter().filter_map(Mapper::wake).chain(ask).min()
    }

    /// Pods whose mappers may have gone with them, once a minute.
    pub(super) fn pods_to_ask(&mut self, now: u64) -> BTreeSet<String> {
        if self.ask_at > now {
            return BTreeSet::new();
        }
        self.ask_at = now + MINUTE;
        self.all.iter().map(|mapper| mapper.info.pod.clone()).filter(|pod| !pod.is_empty()).into_set()
    }

    pub(in super::super) fn count(&self) -> Option<u64> {
        self.are_on().then(|| self.all.iter().filter(|mapper| !mapper.info.replaced).count() as u64)
    }

    /// Two that take turns must not fill the API with events.
    pub(super) fn may_tell_replaced(&mut self, now: Now) -> bool {
        let may = self.replaced_at.is_none_or(|at| at + MINUTE <= now.mono);
        if may {
            self.replaced_at = Some(now.mono);
        }
        may
    }

    /// Loads the state that an earlier process stored, as the daemon sent it.
    pub(super) fn load(&mut self, now: u64) {
        let Self { all, rows, touched, .. } = self;
        let of_mappers = rows.told.iter().filter_map(|(uid, record)| match rows::parse(uid) {
            Some(Of::Mapper(number)) => Mapper::from_record(number, record, now),
            _ => None,
        });
        all.extend(of_mappers);
        for (uid, record) in &rows.told {
            let Some(Of::Device(number, id)) = rows::parse(uid) else { continue };
            let mapper = all.iter_mut().find(|mapper| mapper.number == number);
            if let (Some(mapper), Some(hash)) = (mapper, rows::hash(record)) {
                touched.insert(id.clone());
                mapper.held.insert(id, Some(hash));
            }
        }
    }
}
