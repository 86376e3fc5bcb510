//! Mappers, the programs that drive devices over DMI: which are registered, the devices of each, and their next calls.
//! Does not know the bytes of gRPC, or sockets.
//!
//! | file | owns |
//! |---|---|
//! | `register` | a mapper says that it is there, and is given its devices |
//! | `request` | what a mapper asks |
//! | `allowed` | whose mappers may speak |
//! | `rate` | how often they may register |
//! | `drive` | the calls that are due |
//! | `mapper`, `retry` | one mapper: what it holds, its next call, and when |
//! | `given`, `convert`, `push` | what it is given of a device |
//! | `packed` | specs of devices, in little memory |
//! | `report` | what it says of its devices |
//! | `rows` | what is kept over a restart |

mod allowed;
mod convert;
mod drive;
mod given;
mod mapper;
mod packed;
mod push;
mod rate;
mod register;
mod report;
mod request;
mod retry;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sampan_devices_control::{Named, Row, Settings};
use sampan_sys::gather::Gather;
use serde::Serialize;
use serde_json::Value;

use super::now::{MINUTE, Now};
use super::{Output, Twins};
use crate::grpc::Status;
use allowed::Allowed;
use mapper::{Info, Mapper, Refusal};
use rate::Rate;
use request::not_ready;
use rows::{Of, Rows};

pub(super) use given::{of_device, of_model};
pub(super) use packed::{Packed, Samples};
pub use request::Request;
pub(super) use rows::is_of_mapper;

/// Our own in the folder.
pub const SOCKET: &str = "dmi.sock";
/// The call to answer, and the answer.
#[derive(Debug)]
struct Registration {
    call: u64,
    with_data: bool,
}

struct Event {
    warning: bool,
    reason: &'static str,
    message: String,
}

#[derive(Debug, Default)]
pub(super) struct Mappers {
    /// Where `dmi.sock` is; none where DMI is off.
    folder: Option<PathBuf>,
    allowed: Allowed,
    all: Vec<Mapper>,
    pub(super) rows: Rows,
    pub(super) samples: Samples,
    /// The stored state has been read.
    loaded: bool,
    /// Devices of which something may have changed for a mapper.
    touched: BTreeSet<Named>,
    unanswered: Vec<(Registration, Info)>,
    /// Number of the last call.
    call: u64,
    /// Devices with an event about their problems.
    odd: BTreeMap<Named, String>,
    replaced_at: Option<u64>,
    rate: Rate,
    /// When the daemon is asked next whether the pods of mappers are still there.
    ask_at: u64,
}

impl Mappers {
    pub(super) fn new(settings: &Settings) -> Self {
        let dmi = settings.dmi.as_ref();
        let allowed = dmi.map(Allowed::new).unwrap_or_default();
        Self { folder: dmi.map(|dmi| dmi.folder.clone()), allowed, ..Self::default() }
    }

    /// Whether there may be mappers at all.
    pub(super) const fn are_on(&self) -> bool {
        self.folder.is_some()
    }

    pub(super) fn touch(&mut self, id: &Named) {
        if self.are_on() {
            self.touched.insert(id.clone());
        }
    }

    pub(super) fn wake(&self) -> Option<u64> {
        let ask = self.all.iter().any(|mapper| !mapper.info.pod.is_empty()).then_some(self.ask_at);
        self.all.iter().filter_map(Mapper::wake).chain(ask).min()
    }

    /// Pods whose mappers may have gone with them, once a minute.
    fn pods_to_ask(&mut self, now: u64) -> BTreeSet<String> {
        if self.ask_at > now {
            return BTreeSet::new();
        }
        self.ask_at = now + MINUTE;
        self.all.iter().map(|mapper| mapper.info.pod.clone()).filter(|pod| !pod.is_empty()).into_set()
    }

    pub(super) fn count(&self) -> Option<u64> {
        self.are_on().then(|| self.all.iter().filter(|mapper| !mapper.info.replaced).count() as u64)
    }

    /// Two that take turns must not fill the API with events.
    fn may_tell_replaced(&mut self, now: Now) -> bool {
        let may = self.replaced_at.is_none_or(|at| at + MINUTE <= now.mono);
        if may {
            self.replaced_at = Some(now.mono);
        }
        may
    }

    /// Loads the state that an earlier process stored, as the daemon sent it.
    fn load(&mut self, now: u64) {
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

impl Twins {
    /// A call of a mapper; an [`Output::Answer`] of this number follows. `pod`: uid of the caller's, or empty.
    pub fn asked(&mut self, now: Now, call: u64, request: Request, pod: String) {
        let Some((request, pod)) = self.admit(call, request, pod) else { return };
        let answer = match request {
            Request::Register(request) => return self.register(now, call, request, pod),
            Request::Twins(_) | Request::State(_) if !self.ready => Err(not_ready()),
            Request::Twins(request) => self.twins_reported(now, request),
            Request::State(request) => self.state_reported(now, request),
        };
        self.counters.refused += u64::from(answer.is_err());
        self.outputs.push(Output::Answer { call, answer: answer.map(|()| Vec::new()) });
    }

    /// How a call that was made of a mapper went.
    pub fn answered(&mut self, now: Now, call: u64, answer: Result<(), Status>) {
        let mut answer = Some(answer);
        let Mappers { all, rows, .. } = &mut self.mappers;
        let refused = all.iter_mut().find_map(|mapper| {
            let answer = if mapper.waits_for(call) { answer.take()? } else { return None };
            Some((mapper.info.name.clone(), mapper.answered(now.mono, call, answer, rows)?))
        });
        if let Some((name, Refusal { device, why })) = refused {
            let why: String = why.chars().take(512).collect();
            let message = format!("mapper {name:?} does not take it as it is: {why}");
            self.mapper_event(&device, Event { warning: true, reason: "MapperRefuses", message });
        }
    }

    /// The daemon has sent all rows.
    pub(super) fn mappers_told(&mut self, now: Now) {
        if !self.mappers.are_on() {
            return;
        }
        if !std::mem::replace(&mut self.mappers.loaded, true) {
            self.mappers.load(now.mono);
            self.mappers.ask_at = now.mono + MINUTE;
            self.check_mappers();
            self.mappers.touched.extend(self.devices.keys().cloned());
        }
        let are = self.mappers.all.iter().flat_map(Mapper::rows).into_map();
        self.mappers.rows.differ(are);
    }

    /// Answers mappers that registered before the daemon had sent all objects.
    pub(super) fn mappers_ready(&mut self, now: Now) {
        for (registration, info) in std::mem::take(&mut self.mappers.unanswered) {
            let answer = self.registered(now, &registration, info);
            self.outputs.push(Output::Answer { call: registration.call, answer });
        }
    }

    /// Rows of what mappers hold that have changed since the last call: to record before anything else is done, so that
    /// the next process finds them and passes them in as stored.
    pub fn unnoted(&mut self) -> Vec<Row> {
        self.mappers.rows.take_unnoted()
    }

    /// All that mappers hold, as it is noted.
    pub fn noted(&self) -> Vec<Row> {
        self.mappers.all.iter().flat_map(Mapper::rows).map(|(uid, record)| Row { uid, record }).collect()
    }

    /// All mappers as JSON: a list.
    ///
    /// # Errors
    /// DMI is off.
    pub fn mappers(&self) -> Result<Value, String> {
        if !self.mappers.are_on() {
            return Err("device-twin.dmi is not in config.yaml".to_owned());
        }
        let shown = self.mappers.all.iter().map(|mapper| Shown {
            info: &mapper.info,
            devices: mapper.held.len(),
            waiting: mapper.waiting(),
            answers: mapper.answers(),
        });
        serde_json::to_value(shown.collect::<Vec<_>>()).map_err(|error| error.to_string())
    }
}

/// A mapper as people see it.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    info: &'a Info,
    /// Number of devices that it holds, and of those that wait for a call.
    devices: usize,
    waiting: usize,
    /// The last call reached it.
    answers: bool,
}
