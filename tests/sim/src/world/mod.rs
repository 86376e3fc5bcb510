//! A device, bridges, lines between them, and all faults.

mod faults;
mod options;
mod settle;
mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use cloud_bridge::bridge::ServiceScope;

use crate::api::Api;
use crate::bridge::{Bridge, CLUSTER};
use crate::device::{Crash, Device};
use crate::line::Line;
use crate::rng::Rng;
use crate::twins::NAMES;
use edge_runtime::store::StoreError;
pub use options::Options;

/// The longest wait of a side that is alive: two heartbeats.
const HEAL: Duration = Duration::from_secs(31);

pub struct World {
    pub rng: Rng,
    pub now: Duration,
    pub options: Options,
    pub api: Api,
    pub bridges: Vec<Bridge>,
    /// API and bridge of another cluster; last in numbering.
    foreign: (Api, Bridge),
    pub device: Device,
    lines: BTreeMap<u64, (usize, Line)>,
    /// The line the device is on.
    pub current: Option<u64>,
    numbers: u64,
    restarts: u64,
    walls: [u64; 3],
    full: bool,
}

impl World {
    pub fn new(seed: u64, services: Option<ServiceScope>, devices: bool) -> Self {
        let mut rng = Rng::new(seed);
        let options = Options { services, devices, reconfigured: services.is_some(), ..Options::of(&mut rng) };
        Self::with(rng, options)
    }

    pub fn with(rng: Rng, options: Options) -> Self {
        let mut api = Api::default();
        api.scope = options.services;
        api.devices.on = options.devices;
        let start = |n: usize| Bridge::start(format!("b{n}.0"), CLUSTER, &api, options.tombstones);
        let bridges = (0..options.bridges).map(start).collect();
        let nothing = Api::default();
        let foreign = Bridge::start("foreign".to_owned(), "another", &nothing, 8);
        let mut device = Device::new(options.power_cuts || options.rollbacks);
        device.devices = options.devices;
        Self {
            rng,
            now: Duration::ZERO,
            options,
            bridges,
            foreign: (nothing, foreign),
            api,
            device,
            lines: BTreeMap::new(),
            current: None,
            numbers: 0,
            restarts: 0,
            walls: [1_000_000; 3],
            full: false,
        }
    }

    /// A world in sync, with some objects.
    pub fn calm(seed: u64, options: Options) -> Self {
        let mut world = Self::with(Rng::new(seed), options);
        world.api.create_map("e", 10);
        world.api.create_map("f", 10);
        world.api.create_pod("a", vec!["e".to_owned()]);
        world.api.create_pod("b", vec!["e".to_owned(), "f".to_owned()]);
        world.api.create_pod("c", Vec::new());
        world.settle();
        world
    }

    /// Executes one random event.
    pub fn step(&mut self) {
        self.advance(Duration::from_millis(20));
        if self.options.devices {
            self.step_devices();
        }
        match self.rng.below(100) {
            0..6 => self.api.change(&mut self.rng),
            6..22 => drop(self.follow()),
            22..36 => drop(self.send_down()),
            36..46 => drop(self.send_up()),
            46..58 => drop(self.receive_down()),
            58..68 => drop(self.receive_up()),
            68..74 => {
                let most = self.device.daemon.as_ref().map_or(0, |daemon| daemon.inbox.len());
                let count = self.rng.below(most + 1);
                self.commit(count, None);
            }
            74..82 => drop(self.turn(None)),
            82..90 => drop(self.write()),
            90..94 => drop(self.revive()),
            94 => self.cut(),
            95..97 => self.crash(),
            _ if self.rng.once_in(2) => self.rare(),
            _ => {}
        }
    }

    /// Executes one random event of the devices.
    fn step_devices(&mut self) {
        let name = NAMES[self.rng.below(NAMES.len())];
        match self.rng.below(40) {
            0..8 => {
                let obey = self.rng.once_in(2);
                self.device.sense(name, obey, self.now);
            }
            8..20 => drop(self.tick_helper()),
            20..24 => drop(self.revive_helper()),
            24 => self.device.crash_helper(),
            25..27 => self.api.devices.change(&mut self.rng),
            _ => {}
        }
    }

    /// Lets the helper do what is due, and handles a disk that is full.
    fn tick_helper(&mut self) -> bool {
        let moved = self.device.tick_helper(self.now);
        self.survive(moved)
    }

    pub fn revive_helper(&mut self) -> bool {
        let moved = self.device.revive_helper(self.now);
        self.survive(moved)
    }

    /// Restarts a daemon whose store failed.
    fn survive(&mut self, moved: Result<bool, StoreError>) -> bool {
        if moved.is_err() {
            assert!(self.full, "the store failed though nothing is wrong with it");
            self.device.crash(self.now);
            self.left();
        }
        moved.unwrap_or(true)
    }

    fn follow(&mut self) -> bool {
        let which = self.rng.below(self.bridges.len());
        self.bridges[which].follow(&self.api, &mut self.rng)
    }

    fn bridge(&mut self, which: usize) -> &mut Bridge {
        if which < self.bridges.len() { &mut self.bridges[which] } else { &mut self.foreign.1 }
    }

    /// Starts what is down: the daemon, then a connection. False if everything is up.
    pub fn revive(&mut self) -> bool {
        if self.device.daemon.is_none() {
            self.left();
            // The configuration may have changed before the start.
            if self.options.reconfigured && self.rng.once_in(4) {
                self.device.services = !self.device.services;
            }
            self.device.start(self.now).expect("the store opens");
            self.device.disk_full(self.full);
            return true;
        }
        if self.current.is_some() {
            return false;
        }
        // A device without a cluster would join any; the certificate of its join names the bridge.
        let joined = self.device.position().is_some();
        let which = match joined && self.options.foreign && self.rng.once_in(8) {
            true => self.bridges.len(),
            false => self.rng.below(self.bridges.len()),
        };
        self.connect(which);
        true
    }

    pub fn commit(&mut self, count: usize, crash: Option<Crash>) {
        if self.device.commit(count, crash, &self.api, self.now).is_err() {
            assert!(self.full, "the store failed though nothing is wrong with it");
            self.device.crash(self.now);
        }
        if self.device.daemon.is_none() {
            self.left();
        }
    }

    pub fn turn(&mut self, crash: Option<Crash>) -> bool {
        let moved = self.device.turn(crash, self.now);
        if moved.is_err() {
            assert!(self.full, "the store failed though nothing is wrong with it");
            self.device.crash(self.now);
        }
        if self.device.daemon.is_none() {
            self.left();
        }
        moved.unwrap_or(true)
    }

    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        let now = self.now;
        let session = self.device.daemon.as_mut().and_then(|daemon| daemon.session.as_mut());
        if let Some(session) = session
            && session.next_timeout() <= now
            && session.on_timeout(now).is_err()
        {
            self.leave();
        }
        let numbers: Vec<(u64, usize)> = self.lines.iter().map(|(number, (which, _))| (*number, *which)).collect();
        for (number, which) in numbers {
            let Some(conn) = self.bridge(which).conns.get_mut(&number) else {
                // Both ends are gone.
                if self.current != Some(number) {
                    self.lines.remove(&number);
                }
                continue;
            };
            if conn.session.next_timeout() <= now && conn.session.on_timeout(now).is_err() {
                self.close(number, false);
            }
        }
    }
}
