//! The end of a run: no more faults, and both sides must agree.

use std::time::Duration;

use super::World;
use crate::bridge::wanted;
use crate::twins::group;

/// Maximum number of rests of a second until the world is settled.
const RESTS: usize = 400;

impl World {
    /// Connects to the first bridge without an existing connection. Returns bytes down and up.
    pub fn fresh(&mut self) -> (usize, usize) {
        self.connect(0);
        let number = self.numbers;
        self.run();
        let line = &self.lines[&number].1;
        (line.down_bytes, line.up_bytes)
    }

    /// Ends all faults and runs everything until nothing is left to do. Then both sides must agree.
    pub fn settle(&mut self) {
        self.api.down = false;
        self.full = false;
        self.device.disk_full(false);
        self.options.foreign = false;
        self.bridges.iter_mut().for_each(|bridge| bridge.stalled = false);
        for bridge in self.bridges.iter_mut().filter(|bridge| bridge.lied_to) {
            bridge.relist(&self.api, false);
        }
        self.api.devices.collect();
        for _ in 0..RESTS {
            self.run();
            // The last measurement may have been lost with a helper: it is repeated.
            if self.options.devices && self.devices_differ().is_some() {
                crate::twins::NAMES.iter().for_each(|name| self.device.sense(name, true, self.now));
                self.run();
            }
            if self.device.daemon.is_some() && self.current.is_some() && self.differs().is_none() {
                return;
            }
            self.advance(Duration::from_secs(1));
        }
        panic!("no agreement: {}", self.differs().unwrap_or_else(|| "no connection".to_owned()));
    }

    /// Runs everything until nothing changes. Returns the number of rounds.
    pub fn run(&mut self) -> usize {
        let mut rounds = 0;
        let mut idle = 0;
        // Which line or bridge moves is drawn each time.
        while idle < 30 * (1 + self.lines.len()) * self.bridges.len() {
            let moved = self.round();
            idle = if moved { 0 } else { idle + 1 };
            rounds += usize::from(moved);
            assert!(rounds < 100_000, "no rest");
        }
        rounds
    }

    /// Does at most one thing of each kind.
    pub fn round(&mut self) -> bool {
        let mut moved = self.revive();
        moved |= self.follow();
        moved |= self.send_down();
        moved |= self.send_up();
        moved |= self.receive_down();
        moved |= self.receive_up();
        let count = self.device.daemon.as_ref().map_or(0, |daemon| daemon.inbox.len());
        if count > 0 {
            self.commit(count, None);
            moved = true;
        }
        moved |= self.turn(None);
        if self.options.devices {
            moved |= self.revive_helper();
            moved |= self.tick_helper();
        }
        moved |= self.write();
        moved
    }

    /// A difference between the device and the API.
    pub fn differs(&self) -> Option<String> {
        let skip = |name: &str| self.api.pods.get(name).is_some_and(|pod| pod.poison);
        let mut held = self.device.store().held().expect("reads");
        held.retain(|object| !(object.key.kind == "Pod" && skip(&object.key.name)));
        held.sort();
        let mut want: Vec<_> =
            wanted(&self.api, self.device.services).into_iter().map(|object| object.digest).collect();
        if self.options.devices {
            want.extend(group(&self.api.devices.objects).values().map(|told| told.digest.clone()));
        }
        want.sort();
        if held != want {
            return Some(format!("held {held:?}\nwanted {want:?}"));
        }
        let outbox = self.device.store().outbox().expect("reads");
        if !outbox.is_empty() {
            return Some(format!("reports are left over: {outbox:?}"));
        }
        for (name, pod) in &self.api.pods {
            if pod.deleting {
                return Some(format!("pod {name} is still being deleted"));
            }
            if pod.poison {
                continue;
            }
            if !self.device.running().contains(&pod.uid) {
                return Some(format!("pod {name} {} does not run", pod.uid));
            }
            if self.api.statuses.get(&pod.uid) != self.device.reported.get(&pod.uid) {
                return Some(format!("the newest status of {name} {} is not in the API", pod.uid));
            }
        }
        if let Some(text) = self.devices_differ() {
            return Some(text);
        }
        let gone = self.device.running().into_iter().find(|uid| self.api.deleted.contains(uid));
        if let Some(uid) = gone {
            return Some(format!("pod {uid} was deleted and still runs"));
        }
        let which = self.current.and_then(|number| self.lines.get(&number)).map(|(which, _)| *which)?;
        let bridge = &self.bridges[which];
        if !bridge.is_idle(&self.api) {
            return Some("the bridge has not read all".to_owned());
        }
        let position = self.device.position().map(|p| (p.stream, p.seq));
        if position != Some((bridge.state.stream().to_owned(), bridge.state.seq())) {
            return Some(format!("position {position:?} is not {:?}", bridge.state.seq()));
        }
        None
    }

    /// A difference between the API and the sensors and actuators.
    fn devices_differ(&self) -> Option<String> {
        let devices = &self.api.devices;
        for (name, object) in devices.objects.0.iter().filter(|(_, object)| !object.elsewhere) {
            let shown = |property, side| devices.value(name, property, side);
            let desired = Some(object.desired);
            let found = (shown("temp", "reported"), shown("led", "reported"), shown("led", "observedDesired"));
            if found != (self.device.temp(name), desired, desired) {
                return Some(format!("device {name} {object:?} at {:?}: {found:?}", self.device.temp(name)));
            }
        }
        None
    }

    /// Breaks the connection and reconnects to the same bridge. Returns bytes down and up.
    pub fn reconnect(&mut self) -> (usize, usize) {
        let number = self.current.expect("a connection");
        let which = self.lines[&number].0;
        self.cut();
        self.connect(which);
        let number = self.numbers;
        self.run();
        let line = &self.lines[&number].1;
        (line.down_bytes, line.up_bytes)
    }
}
