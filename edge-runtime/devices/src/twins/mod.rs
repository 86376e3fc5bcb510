//! The state of the devices behind a node, and the reactions to news: a state machine without I/O and without a clock.
//! Its owner passes in events with their times, then takes the outputs. Knows no socket.
//!
//! | file | owns |
//! |---|---|
//! | `objects` | Device and DeviceModel objects, and what the daemon says |
//! | `link` | the link, and what the bridge has |
//! | `device` | one device: properties, state, how news changes them |
//! | `output` | actions for the owner |
//! | `tell` | what the daemon is told |
//! | `body`, `value` | what is taken out of objects; whether a value fits |
//! | `messages`, `update` | MQTT messages, and what an update may change |
//! | `request`, `plain`, `documents`, `topics` | their form |
//! | `announce`, `announcements` | unrequested deltas and documents; when which device is announced |
//! | `fresh` | what was retained for devices that came later |
//! | `due` | when the bridge is told |
//! | `keep`, `record` | when what is written, and its form |
//! | `uid` | the uid of a device, in few bytes |
//! | `history`, `histories` | the last changes of what a device reports; of all devices |
//! | `counters` | what is counted, for people |
//! | `ask` | questions of people on the device |
//! | `mappers` | programs that drive devices over DMI |
//! | `merge` | a device with what its model says, for drivers |

mod announce;
mod announcements;
mod ask;
mod body;
mod counters;
mod device;
mod documents;
mod due;
mod fresh;
mod histories;
mod history;
mod ids;
mod keep;
mod link;
mod mappers;
mod merge;
mod messages;
mod now;
mod objects;
mod output;
mod plain;
mod record;
mod request;
mod tell;
mod topics;
mod uid;
mod update;
mod value;
mod waiting;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use sampan_devices_control::{Named, Settings};
use sampan_sys::gather::Gather;

use announcements::Announcements;
use body::Model;
use device::Device;
use due::Due;
use fresh::Fresh;
use history::Histories;
use keep::{Keep, Which};
use mappers::Mappers;

pub use counters::{Counters, Listening, Rules};
pub(crate) use ids::Ids;
pub use mappers::{Request, SOCKET};
pub use now::Now;
pub use output::{Message, Output};
pub use topics::{FILTERS, SAID};

/// Between two lines of counters.
const SECOND: u64 = 1_000;

/// All that is known.
#[derive(Debug)]
pub struct Twins {
    node: String,
    check: bool,
    devices: BTreeMap<Named, Box<Device>>,
    models: BTreeMap<Named, Model>,
    /// Records that the daemon has sent in this round, by uid.
    records: BTreeMap<String, String>,
    /// When unowned records are deleted.
    forget_at: Option<u64>,
    /// A daemon is connected.
    daemon: bool,
    /// A daemon has sent all objects at least once.
    ready: bool,
    link: bool,
    clock_set: bool,
    /// `None` without a configured broker.
    broker: Option<bool>,
    /// Clients may connect to the node itself.
    listens: bool,
    /// A client may receive what is published.
    heard: bool,
    due: Due,
    keep: Keep,
    /// Number of the last report.
    seq: u64,
    announcements: Announcements,
    histories: Histories,
    fresh: Fresh,
    mappers: Mappers,
    ids: Ids,
    counters: Counters,
    counted: Counters,
    counted_at: u64,
    changed: BTreeSet<Named>,
    outputs: Vec<Output>,
}

impl Twins {
    /// `seed` makes ids of messages differ from those of other processes.
    pub fn new(node: String, settings: &Settings, seed: u64) -> Self {
        Self {
            node,
            check: settings.check_values.0,
            devices: BTreeMap::new(),
            models: BTreeMap::new(),
            records: BTreeMap::new(),
            forget_at: None,
            daemon: false,
            ready: false,
            link: false,
            clock_set: true,
            broker: settings.mqtt.as_ref().map(|_| false),
            listens: false,
            heard: false,
            due: Due::new(settings.report.clone()),
            keep: Keep::new(settings.store.writes_per_hour),
            seq: 0,
            announcements: Announcements::default(),
            histories: Histories::default(),
            fresh: Fresh::default(),
            mappers: Mappers::new(settings),
            ids: Ids::new(seed),
            counters: Counters::default(),
            counted: Counters::default(),
            counted_at: 0,
            changed: BTreeSet::new(),
            outputs: Vec::new(),
        }
    }

    /// Whether devices are known: messages of them would be answered wrongly before.
    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    /// Does what the time has come for. `room`: messages that the broker's queue takes.
    pub fn tick(&mut self, now: Now, room: usize) {
        self.forget(now);
        self.share_histories();
        self.fresh.tick(now.mono);
        let room = room.saturating_sub(self.outputs.len());
        self.announce(now, room);
        self.report(now);
        self.drive(now);
        self.write(now);
        self.count(now);
    }

    /// Counters of this module; other modules add their own.
    pub const fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// When to call [`tick`](Self::tick) next, without news.
    pub fn wake(&self) -> Option<u64> {
        let announce = self.announcements.wake().filter(|_| self.heard);
        let report = self.due.wake().filter(|_| self.reports());
        let keep = self.keep.wake().filter(|_| self.daemon && self.ready);
        let forget = self.forget_at.filter(|_| self.reports());
        let count = (self.daemon && self.counters != self.counted).then_some(self.counted_at + SECOND);
        let drive = self.mappers.wake().filter(|_| self.ready);
        [announce, report, keep, forget, count, drive, self.fresh.wake()].into_iter().flatten().min()
    }

    /// Takes the actions, in this order.
    pub fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Whether [`filters`](Self::filters) are others than when this was last asked.
    pub const fn changed_filters(&mut self) -> bool {
        self.fresh.is_changed()
    }

    /// Topics to subscribe to at the broker besides [`FILTERS`].
    pub fn filters(&self) -> BTreeSet<String> {
        self.fresh.filters().into_set()
    }

    /// Topics whose retained messages at the listener must be passed in as [`message`](Self::message)s, once.
    pub fn unheard(&mut self) -> Vec<String> {
        self.fresh.unheard()
    }

    /// Devices that have changed since the last call.
    pub fn changed(&mut self) -> BTreeSet<Named> {
        std::mem::take(&mut self.changed)
    }

    /// Messages that found no room.
    pub const fn dropped(&mut self, messages: u64) {
        self.counters.dropped += messages;
    }

    /// Returns all unsaved rows, as messages. Nothing follows them.
    pub fn end(&mut self, now: Now) {
        if self.daemon {
            self.keep_rows(Which::End, now);
        }
    }

    const fn reports(&self) -> bool {
        self.daemon && self.ready && self.link
    }

    /// Publishes only if a client could receive it: urgent news is announced again when there is a broker.
    fn publish(&mut self, topic: String, payload: Vec<u8>) {
        if self.heard {
            self.outputs.push(Output::Publish(Message { topic, payload }));
        } else if self.broker == Some(false) {
            self.counters.dropped += 1;
        }
    }
}
