//! One mapper: the devices that it holds, its next call, and the consequences of the call's result. Does not know the
//! state of its socket or the content of a device.
//!
//! Calls go one by one. A device waits by name, and the mapper gets the state at its turn: the newest wins, and a state
//! that the mapper already has is not sent again.

mod next;

use std::collections::{BTreeMap, BTreeSet};

use sampan_devices_control::Named;
use sampan_grpc::{Code, Status};
use sampan_sys::gather::Gather;
use serde::{Deserialize, Serialize};

use super::given::{Given, Wanted};
use super::retry::{self, Retry};
use super::rows::{self, Rows};

/// Most mappers of a node.
pub(super) const MOST: usize = 32;

/// Time after its registration in which a mapper may not serve yet, in milliseconds: it is tried at least each second.
const YOUNG: u64 = 60_000;
const WHILE_YOUNG: u64 = 1_000;

/// Identity of the mapper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Info {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) protocol: String,
    /// Name of its socket in the folder.
    pub(super) socket: String,
    /// Uid of its pod; empty for a process of the node.
    pub(super) pod: String,
    /// A newer one drives its devices: it is to hold none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) replaced: bool,
}

/// Stored state of a mapper.
#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    info: Info,
    /// `NAMESPACE/NAME` and hash.
    #[serde(default)]
    models: BTreeMap<String, u64>,
}

#[derive(Debug)]
pub(super) struct Mapper {
    pub(super) number: u64,
    pub(super) info: Info,
    /// Models that it holds, and their hashes.
    pub(super) models: BTreeMap<Named, u64>,
    /// Devices that it holds, and their hashes; none while RemoveDevice is tried.
    pub(super) held: BTreeMap<Named, Option<u64>>,
    /// Devices of which it may not hold what it should.
    queue: BTreeMap<Named, Retry>,
    /// Devices that it refused in their present form, and that an event has reported.
    refused: BTreeSet<Named>,
    flying: Option<Flying>,
    /// No process accepts calls at its socket.
    down: Retry,
    /// When it came to be known, by the clock of this process.
    pub(super) known: u64,
}

#[derive(Debug)]
struct Flying {
    call: u64,
    device: Named,
    what: What,
}

#[derive(Debug)]
enum What {
    Model(Named, u64),
    Device(u64),
    Remove,
}

/// A call to make.
#[derive(Debug)]
pub(super) struct ToCall {
    pub(super) path: &'static str,
    pub(super) message: Vec<u8>,
    /// Problems of the device that the call sends.
    pub(super) odd: Option<(Named, Option<String>)>,
}

/// It would not take a device, for the first time.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) device: Named,
    pub(super) why: String,
}

impl Mapper {
    pub(super) const fn new(number: u64, info: Info, known: u64) -> Self {
        Self {
            number,
            info,
            models: BTreeMap::new(),
            held: BTreeMap::new(),
            queue: BTreeMap::new(),
            refused: BTreeSet::new(),
            flying: None,
            down: Retry::at(0),
            known,
        }
    }

    pub(super) fn from_record(number: u64, record: &str, known: u64) -> Option<Self> {
        let Record { info, models } = serde_json::from_str(record).ok()?;
        let named = |(id, hash): (String, u64)| {
            let (namespace, name) = id.split_once('/')?;
            Some((Named { namespace: namespace.into(), name: name.into() }, hash))
        };
        Some(Self { models: models.into_iter().filter_map(named).into_map(), ..Self::new(number, info, known) })
    }

    pub(super) fn record(&self) -> String {
        let models = self.models.iter().map(|(id, hash)| (format!("{}/{}", id.namespace, id.name), *hash)).into_map();
        serde_json::to_string(&Record { info: self.info.clone(), models }).unwrap_or_default()
    }

    /// All that is kept of it.
    pub(super) fn rows(&self) -> impl Iterator<Item = (String, String)> {
        let devices = self.held.iter().map(|(id, hash)| (rows::of_device(self.number, id), rows::record(*hash)));
        devices.chain([(rows::of_mapper(self.number), self.record())])
    }

    /// Something of this device may have changed.
    pub(super) fn look(&mut self, id: &Named, wanted: &Wanted) {
        let differs = match (self.held.get(id), wanted) {
            (_, Wanted::Later) => false,
            (held, Wanted::Is(given)) if self.is_of(given) => *held.unwrap_or(&None) != Some(given.hash),
            (held, _) => held.is_some(),
        };
        if differs {
            self.queue.insert(id.clone(), Retry::default());
        } else if self.flying.as_ref().is_none_or(|flying| flying.device != *id) {
            self.queue.remove(id);
        }
    }

    /// Enqueues this device.
    pub(super) fn enqueue(&mut self, id: Named) {
        self.queue.insert(id, Retry::default());
    }

    fn is_of(&self, given: &Given) -> bool {
        !self.info.replaced && self.info.protocol == given.protocol
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(super) const fn answers(&self) -> bool {
        !self.down.is_failing()
    }

    pub(super) fn wake(&self) -> Option<u64> {
        if self.flying.is_some() {
            return None;
        }
        self.queue.values().map(|retry| retry.at.max(self.down.at)).min()
    }

    /// The mapper has reported about this device: it runs, and may accept calls now.
    pub(super) fn is_heard(&mut self, now: u64, device: &Named) {
        if self.held.contains_key(device) {
            self.down.sooner(now);
        }
    }

    pub(super) fn waits_for(&self, call: u64) -> bool {
        self.flying.as_ref().is_some_and(|flying| flying.call == call)
    }

    /// Handles the result of the call with this number. An answer to an earlier instance is ignored.
    pub(super) fn answered(
        &mut self,
        now: u64,
        call: u64,
        answer: Result<(), Status>,
        rows: &mut Rows,
    ) -> Option<Refusal> {
        let Flying { device, what, .. } = self.flying.take_if(|flying| flying.call == call)?;
        if let Err(Status { code: Code::Unavailable, message }) = &answer {
            if !self.down.is_failing() {
                log::info!("mapper {} does not take calls yet: {message}", self.info.name);
            }
            let young = now < self.known.saturating_add(YOUNG);
            self.down.again(now, if young { WHILE_YOUNG } else { retry::MOST });
            return None;
        }
        self.down = Retry::default();
        let unknown = answer.as_ref().is_err_and(|status| status.code == Code::Unimplemented);
        match (what, answer) {
            (What::Model(id, hash), answer) if answer.is_ok() || unknown => {
                self.models.insert(id, hash);
                rows.put(rows::of_mapper(self.number), self.record());
                self.soon(device, now)
            }
            (What::Device(hash), Ok(())) => {
                rows.put(rows::of_device(self.number, &device), rows::record(Some(hash)));
                self.refused.remove(&device);
                self.held.insert(device.clone(), Some(hash));
                self.soon(device, now)
            }
            // Whether it was done or not: the second one would end the mapper.
            (What::Remove, answer) => {
                if let Err(status) = answer {
                    log::warn!(
                        "mapper {} was told to leave {}/{}: {status}",
                        self.info.name,
                        device.namespace,
                        device.name
                    );
                }
                rows.forget(rows::of_device(self.number, &device));
                self.refused.remove(&device);
                self.held.remove(&device);
                self.soon(device, now)
            }
            (What::Model(..) | What::Device(_), Err(status)) => {
                self.queue.entry(device.clone()).or_default().again(now, retry::MOST);
                let why = status.to_string();
                self.refused.insert(device.clone()).then_some(Refusal { device, why })
            }
            (What::Model(..), Ok(())) => None,
        }
    }

    /// Enqueues the device again, for the next call.
    fn soon(&mut self, device: Named, now: u64) -> Option<Refusal> {
        self.queue.insert(device, Retry::at(now));
        None
    }
}
