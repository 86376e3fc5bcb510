//! The link, and what the bridge has received. Does not know MQTT messages.

use std::collections::BTreeSet;

use edge_protocol::message::DeviceRefusal;
use sampan_sys::gather::Gather;

use super::Twins;
use super::now::Now;
use super::uid::Uid;

impl Twins {
    /// Whether reports reach the bridge now.
    pub fn link(&mut self, now: Now, up: bool, clock_set: bool) {
        self.clock_set = clock_set;
        self.link = up;
        // The link is down or up again: the result of a batch in progress stays unknown.
        self.due.void(&mut self.devices);
        if up {
            self.keep.link_up();
            // Rows from before say pending about values that the bridge may have by now.
            self.keep.settle(now.mono);
        } else {
            self.keep.link_down(now.mono);
        }
    }

    /// The bridge has received a batch. It will never accept what it refuses of it.
    pub fn acked(&mut self, now: Now, batch: u64, refused: &[DeviceRefusal]) {
        for DeviceRefusal { uid, reason } in refused {
            log::warn!("the bridge refuses something of the device with uid {uid}: {reason}");
            self.counters.refused += 1;
        }
        let unwritten: BTreeSet<Uid> = refused.iter().map(|refusal| Uid::from(&*refusal.uid)).into_set();
        for (id, uid) in self.due.acked(batch) {
            let Some(device) = self.devices.get_mut(&id).filter(|device| device.uid == uid) else { continue };
            if unwritten.contains(&uid) {
                // The cause of the refusal may end: the value is sent again, rarely, or when the Device changes.
                self.due.again(&mut device.waiting, now.mono);
                continue;
            }
            device.acked();
            device.unkept.any = true;
            self.counters.reports_out += 1;
            if device.unkept.spilled {
                self.keep.settle(now.mono);
            }
        }
    }
}
