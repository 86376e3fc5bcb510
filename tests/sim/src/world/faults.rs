//! Faults of a world: crashes, cuts, old disks, restarts, peers of other versions. Does not decide when.

use super::{HEAL, World};
use crate::bridge::{Bridge, CLUSTER};
use crate::device::{Crash, Daemon};

impl World {
    pub(super) fn rare(&mut self) {
        let options = self.options;
        match self.rng.below(14) {
            0 => self.leave(),
            1 => {
                let which = self.rng.below(self.bridges.len());
                self.restart_bridge(which);
            }
            2 => {
                if let Some((_, line)) = self.current.and_then(|number| self.lines.get_mut(&number)) {
                    line.silent = true;
                }
            }
            3 | 4 => self.advance(HEAL),
            5 => {
                let (which, lacking) = (self.rng.below(self.bridges.len()), self.rng.once_in(2));
                self.bridges[which].relist(&self.api, lacking);
            }
            6 if self.rng.once_in(3) => self.api.delete_all(),
            7 if options.power_cuts => self.power_cut(),
            8 if options.disk_full => {
                self.full = !self.full;
                self.device.disk_full(self.full);
            }
            9 if options.outages => self.api.down = !self.api.down,
            10 if options.skew => self.babble(),
            11 if options.rollbacks => match self.rng.below(3) {
                0 => self.device.take_image(),
                1 => self.roll_back(),
                _ => {
                    self.device.reinstall(self.now);
                    self.left();
                }
            },
            12 if options.clock_jumps => {
                self.device.wall_s = i64::try_from(self.rng.below(1_000_000_000)).expect("small") - 800_000_000;
                let which = self.rng.below(3);
                self.walls[which] = self.rng.number() % 2_000_000;
            }
            // Watches may also hang while their bridge has no node.
            13 if options.bridges > 1 => {
                let busy = self.current.and_then(|number| self.lines.get(&number)).map(|(which, _)| *which);
                for (which, bridge) in self.bridges.iter_mut().enumerate() {
                    bridge.stalled = !bridge.stalled && busy != Some(which);
                }
            }
            _ => {}
        }
    }

    /// Restores an old copy of the disk, or loses the past of the pods in another way.
    pub fn roll_back(&mut self) {
        if self.device.restore_image(self.now) {
            self.left();
            // The copy may hold statuses that are older than those in the API.
            self.api.statuses.clear();
        }
    }

    /// A peer of a later version sends something.
    pub(super) fn babble(&mut self) {
        let Some(number) = self.current else { return };
        let Some((_, line)) = self.lines.get_mut(&number) else { return };
        let welcome = |daemon: &Daemon| daemon.session.as_ref().is_some_and(|s| s.is_welcome());
        if !self.device.daemon.as_ref().is_some_and(welcome) {
            return;
        }
        let text = r#"{"dance":{"steps":3}}"#.to_owned();
        if self.rng.once_in(2) { line.send_down(text) } else { line.send_up(text) }
    }

    pub fn restart_bridge(&mut self, which: usize) {
        self.restarts += 1;
        let name = format!("b{which}.{}", self.restarts);
        self.bridges[which] = Bridge::start(name, CLUSTER, &self.api, self.options.tombstones);
        let gone: Vec<u64> = self.lines.iter().filter(|(_, (of, _))| *of == which).map(|(n, _)| *n).collect();
        for number in gone {
            self.lines.remove(&number);
            if self.current == Some(number) {
                self.current = None;
                self.device.lose_connection(self.now);
            }
        }
    }

    pub(super) fn crash(&mut self) {
        let points = [Crash::BeforeCommit, Crash::AfterCommit, Crash::BeforeSteps, Crash::AfterStep];
        match points[self.rng.below(4)] {
            point @ (Crash::BeforeCommit | Crash::AfterCommit) => {
                let most = self.device.daemon.as_ref().map_or(0, |daemon| daemon.inbox.len());
                let count = self.rng.below(most + 1);
                self.commit(count, Some(point));
            }
            point => drop(self.turn(Some(point))),
        }
        if self.device.daemon.is_none() {
            self.left();
        }
    }

    pub fn power_cut(&mut self) {
        self.device.power_cut(self.now);
        self.left();
    }

    /// Connects the node to this bridge; the previous one does not notice.
    pub fn move_to(&mut self, which: usize) {
        self.leave();
        if self.device.daemon.is_some() {
            self.connect(which);
        }
    }

    /// Takes the node offline until `revive`.
    pub fn away(&mut self) {
        self.cut();
        self.device.crash(self.now);
    }

    /// The node connects to a bridge of another cluster.
    pub fn to_foreign(&mut self) {
        self.cut();
        self.connect(self.bridges.len());
        for _ in 0..50 {
            self.send_up();
            self.receive_up();
            self.send_down();
            self.receive_down();
        }
        self.cut();
    }

    /// The device has left its line; frames that it sent may still arrive.
    pub(super) fn left(&mut self) {
        if let Some((_, line)) = self.current.take().and_then(|number| self.lines.get_mut(&number)) {
            line.left = true;
        }
    }

    /// The device gives up its connection; the bridge does not notice.
    pub(super) fn leave(&mut self) {
        self.device.lose_connection(self.now);
        self.left();
    }

    /// Both sides see the connection break, and frames under way are lost.
    pub fn cut(&mut self) {
        if let Some(number) = self.current {
            self.close(number, false);
        }
    }
}
