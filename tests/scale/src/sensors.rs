//! The devices of a node, and their reports. Knows nothing of connections except the session.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use edge_protocol::edge::EdgeSession;
use edge_protocol::message::{DeviceReport, Object, ObjectKey, TwinReport, TwinValue};
use serde_json::Value;

/// Each device measures a new value once in `every`, one after the other.
pub(crate) struct Sensors {
    every: Duration,
    uids: BTreeMap<ObjectKey, String>,
    /// The next device, and its time.
    turn: usize,
    said: Instant,
    pause: Duration,
    batches: u64,
    /// Whether a batch is under way: the next one waits for its acknowledgement.
    waits: bool,
}

impl Sensors {
    /// `phase`: part of the interval of one device after which the first report is due, so that nodes differ.
    pub(crate) fn new(every: Duration, phase: f64) -> Self {
        let first = every.mul_f64(phase);
        Self { every, uids: BTreeMap::new(), turn: 0, said: Instant::now(), pause: first, batches: 0, waits: false }
    }

    /// False if it is not a device.
    pub(crate) fn put(&mut self, object: &Object) -> bool {
        let is = object.digest.key.kind == "Device";
        if is {
            self.uids.insert(object.digest.key.clone(), object.digest.uid.clone());
        }
        is
    }

    pub(crate) fn gone(&mut self, key: &ObjectKey) {
        self.uids.remove(key);
    }

    /// The batch under way was written, or was lost with its connection.
    pub(crate) fn over(&mut self) {
        self.waits = false;
    }

    /// Time at which [`report`](Self::report) has something to do.
    pub(crate) fn wake(&self) -> Option<Instant> {
        (!self.waits && !self.uids.is_empty() && !self.every.is_zero()).then(|| self.said + self.pause)
    }

    pub(crate) fn report(&mut self, session: &mut EdgeSession) {
        if !session.is_welcome() || self.wake().is_none_or(|due| due > Instant::now()) {
            return;
        }
        self.pause = self.every / u32::try_from(self.uids.len()).unwrap_or(u32::MAX);
        self.said = Instant::now();
        self.turn += 1;
        let Some((key, uid)) = self.uids.iter().nth(self.turn % self.uids.len()) else { return };
        self.batches += 1;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() * 1_000);
        let value = format!("{}.5", self.batches);
        let reported = TwinValue { value, at_ms: at, kind: "float".to_owned(), ..TwinValue::default() };
        let report = DeviceReport {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: uid.clone(),
            seq: self.batches,
            state: None,
            twins: vec![TwinReport { property: "temp".to_owned(), reported: Some(reported), observed: None }],
        };
        self.waits = session.devices(self.batches, vec![Value::from(&report)]);
    }
}
