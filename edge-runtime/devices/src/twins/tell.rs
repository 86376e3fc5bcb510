//! What the daemon is told: reports, rows to keep, counters.

use sampan_devices_control::{FromHelper, Row};
use serde_json::Value;

use super::body::model_of;
use super::device::Device;
use super::keep::{self, Which};
use super::{Now, Output, SECOND, Twins, record};

/// About how many bytes of rows one line has.
pub(super) const ROWS: usize = 256 << 10;

impl Twins {
    pub(super) fn report(&mut self, now: Now) {
        if !self.reports() {
            return;
        }
        let chosen = self.due.choose(now.mono, self.devices.iter().map(|(id, device)| (id, &**device)));
        if chosen.is_empty() {
            return;
        }
        let batch = self.due.begin(now.wall);
        let mut devices = Vec::with_capacity(chosen.len());
        for id in chosen {
            let Some(device) = self.devices.get_mut(&id) else { continue };
            self.due.take(&id, &device.uid, &mut device.waiting, now.mono);
            let report = device.report(&id, self.models.get(&model_of(&id, &device.model)), self.seq.max(now.wall));
            self.seq = report.seq;
            devices.push(Value::from(&report));
        }
        self.outputs.push(Output::Tell(FromHelper::Report { batch, devices }));
    }

    pub(super) fn write(&mut self, now: Now) {
        if self.daemon && self.ready {
            while let Some(which) = self.keep.due(now.mono) {
                self.keep_rows(which, now);
            }
        }
    }

    pub(super) fn keep_rows(&mut self, which: Which, now: Now) {
        let (mut rows, mut bytes, mut total) = (Vec::new(), 0, 0);
        let mut lines = Vec::new();
        let devices = self.devices.values_mut().filter(|device| which.fits(&device.unkept)).map(|device| {
            device.unkept = keep::Unkept { spilled: device.is_due(), ..keep::Unkept::default() };
            Row { uid: device.uid.to_string(), record: record::of(device) }
        });
        let of_mappers = which.has_mappers().then(|| self.mappers.rows.take());
        let rows_of_devices: Vec<Row> = devices.collect();
        let histories = self.devices.values_mut().filter(|_| which.has_histories()).flat_map(|device| {
            let Device { uid, history, .. } = &mut **device;
            let uid = &*uid;
            history.iter_mut().flat_map(move |history| history.rows(&uid.to_string()))
        });
        for row in of_mappers.into_iter().flatten().chain(rows_of_devices).chain(histories) {
            let size = row.record.len() + row.uid.len() + 32;
            if bytes + size > ROWS && !rows.is_empty() {
                lines.push(std::mem::take(&mut rows));
                bytes = 0;
            }
            (bytes, total) = (bytes + size, total + size);
            rows.push(row);
        }
        if !rows.is_empty() {
            lines.push(rows);
        }
        self.keep.written(which, total, now.mono);
        self.counters.kept_bytes += total as u64;
        // Losing the note that the bridge has a value costs one repeated report; and a mapper does not survive a power
        // cut.
        let durable = !matches!(which, Which::Spilled | Which::Mappers);
        self.outputs.extend(lines.into_iter().map(|rows| Output::Tell(FromHelper::Keep { rows, durable })));
    }

    pub(super) fn count(&mut self, now: Now) {
        self.counters.devices = self.devices.len() as u64;
        self.counters.broker = self.broker;
        self.counters.mappers = self.mappers.count();
        if self.daemon && self.counters != self.counted && now.mono >= self.counted_at + SECOND {
            self.counted = self.counters.clone();
            self.counted_at = now.mono;
            self.outputs.push(Output::Tell(FromHelper::Counters { counters: self.counters.shown() }));
        }
    }
}
