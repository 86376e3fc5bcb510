//! A device, bridges, lines between them, and everything that can go wrong on the way.

use std::collections::BTreeMap;
use std::time::Duration;

use edge_protocol::SessionError;
use edge_protocol::frame::MAX_TO_EDGE;
use edge_protocol::version::RefuseReason;

use crate::api::Api;
use crate::bridge::{Bridge, CLUSTER, WINDOW, wanted};
use crate::device::{Crash, Device};
use crate::line::Line;
use crate::rng::Rng;

/// The slowest thing a live side waits for is two heartbeats.
const HEAL: Duration = Duration::from_secs(31);

/// How many rests of a second settling may take.
const RESTS: usize = 400;

/// What a world may meet. Chosen by the seed, so that each fault is also seen without the others.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub bridges: usize,
    pub tombstones: usize,
    pub power_cuts: bool,
    pub disk_full: bool,
    pub outages: bool,
    /// Peers of other versions: hellos without new fields, messages nobody knows.
    pub skew: bool,
    /// A bridge of another cluster answers at times.
    pub foreign: bool,
    pub rollbacks: bool,
    pub clock_jumps: bool,
}

impl Options {
    pub fn of(rng: &mut Rng) -> Self {
        Self {
            bridges: 1 + rng.below(2),
            tombstones: [4, 8, 1000][rng.below(3)],
            power_cuts: rng.once_in(3),
            disk_full: rng.once_in(3),
            outages: rng.once_in(2),
            skew: rng.once_in(2),
            foreign: rng.once_in(4),
            rollbacks: rng.once_in(4),
            clock_jumps: rng.once_in(2),
        }
    }

    /// Cuts and crashes only.
    pub fn plain() -> Self {
        Self {
            bridges: 1,
            tombstones: 1000,
            power_cuts: false,
            disk_full: false,
            outages: false,
            skew: false,
            foreign: false,
            rollbacks: false,
            clock_jumps: false,
        }
    }
}

pub struct World {
    pub rng: Rng,
    pub now: Duration,
    pub options: Options,
    pub api: Api,
    pub bridges: Vec<Bridge>,
    /// Of another cluster; last in numbering.
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
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let options = Options::of(&mut rng);
        Self::with(rng, options)
    }

    pub fn with(rng: Rng, options: Options) -> Self {
        let api = Api::default();
        let start = |n: usize| Bridge::start(format!("b{n}.0"), CLUSTER, &api, options.tombstones);
        let bridges = (0..options.bridges).map(start).collect();
        let nothing = Api::default();
        let foreign = Bridge::start("foreign".to_owned(), "another", &nothing, 8);
        Self {
            rng,
            now: Duration::ZERO,
            options,
            bridges,
            foreign: (nothing, foreign),
            api,
            device: Device::new(options.power_cuts || options.rollbacks),
            lines: BTreeMap::new(),
            current: None,
            numbers: 0,
            restarts: 0,
            walls: [1_000_000; 3],
            full: false,
        }
    }

    /// A world in sync with some objects.
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

    /// One random thing happens.
    pub fn step(&mut self) {
        self.advance(Duration::from_millis(20));
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

    fn rare(&mut self) {
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
            _ => {}
        }
    }

    /// An old copy of the disk is written back, or the pods' past is forgotten in another way.
    pub fn roll_back(&mut self) {
        if self.device.restore_image(self.now) {
            self.left();
            // The copy may hold statuses that are older than what the API has.
            self.api.statuses.clear();
        }
    }

    /// A peer of a later version says something.
    fn babble(&mut self) {
        let Some(number) = self.current else { return };
        let Some((_, line)) = self.lines.get_mut(&number) else { return };
        let welcome = |daemon: &crate::device::Daemon| daemon.session.as_ref().is_some_and(|s| s.is_welcome());
        if !self.device.daemon.as_ref().is_some_and(welcome) {
            return;
        }
        let text = r#"{"dance":{"steps":3}}"#.to_owned();
        if self.rng.once_in(2) { line.send_down(text) } else { line.send_up(text) }
    }

    // The API's side.

    fn follow(&mut self) -> bool {
        let which = self.rng.below(self.bridges.len());
        self.bridges[which].follow(&self.api, &mut self.rng)
    }

    fn bridge(&mut self, which: usize) -> &mut Bridge {
        if which < self.bridges.len() { &mut self.bridges[which] } else { &mut self.foreign.1 }
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
                self.device.lose_connection();
            }
        }
    }

    fn write(&mut self) -> bool {
        let Some((number, which)) = self.some_line() else { return false };
        if which >= self.bridges.len() {
            return false;
        }
        let moved = self.bridges[which].write(number, &mut self.api, &mut self.rng);
        if self.bridges[which].conns.get(&number).is_some_and(|conn| conn.superseded) {
            self.close(number, true);
            return true;
        }
        moved
    }

    fn some_line(&mut self) -> Option<(u64, usize)> {
        let at = self.rng.below(self.lines.len().max(1));
        self.lines.iter().nth(at).map(|(number, (which, _))| (*number, *which))
    }

    // The device's side.

    /// Starts what is down: the daemon, then a connection. False if all is up.
    pub fn revive(&mut self) -> bool {
        if self.device.daemon.is_none() {
            self.left();
            self.device.start(self.now).expect("the store opens");
            self.device.disk_full(self.full);
            return true;
        }
        if self.current.is_some() {
            return false;
        }
        // A device that has no cluster yet would be taken in by any; the certificate of its join names the bridge.
        let joined = self.device.position().is_some();
        let which = match joined && self.options.foreign && self.rng.once_in(8) {
            true => self.bridges.len(),
            false => self.rng.below(self.bridges.len()),
        };
        self.connect(which);
        true
    }

    pub fn connect(&mut self, which: usize) {
        self.numbers += 1;
        // No two connections are made at the same time.
        self.now += Duration::from_millis(1);
        let (number, now) = (self.numbers, self.now);
        let old_build = self.options.skew && self.options.bridges == 1 && self.rng.once_in(3);
        self.device.connect(now, old_build);
        self.lines.insert(number, (which, Line::default()));
        self.current = Some(number);
        let wall = self.walls[which] + u64::try_from(now.as_millis()).expect("a short run");
        self.bridge(which).accept(number, wall, now);
    }

    fn crash(&mut self) {
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

    pub fn commit(&mut self, count: usize, crash: Option<Crash>) {
        if self.device.commit(count, crash, &self.api, self.now).is_err() {
            assert!(self.full, "the store failed though nothing is wrong with it");
            self.device.crash();
        }
        if self.device.daemon.is_none() {
            self.left();
        }
    }

    pub fn turn(&mut self, crash: Option<Crash>) -> bool {
        let moved = self.device.turn(crash, self.now);
        if moved.is_err() {
            assert!(self.full, "the store failed though nothing is wrong with it");
            self.device.crash();
        }
        if self.device.daemon.is_none() {
            self.left();
        }
        moved.unwrap_or(true)
    }

    pub fn power_cut(&mut self) {
        self.device.power_cut(self.now);
        self.left();
    }

    /// The node goes to this bridge; the one it was at does not notice.
    pub fn move_to(&mut self, which: usize) {
        self.leave();
        if self.device.daemon.is_some() {
            self.connect(which);
        }
    }

    /// The node is away: cut off, and not back before somebody revives it.
    pub fn away(&mut self) {
        self.cut();
        self.device.crash();
    }

    /// The node comes upon a bridge of another cluster.
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

    /// A connection to the first bridge when there is none. Returns bytes down and up.
    pub fn fresh(&mut self) -> (usize, usize) {
        self.connect(0);
        let number = self.numbers;
        self.run();
        let line = &self.lines[&number].1;
        (line.down_bytes, line.up_bytes)
    }

    // The lines.

    /// The device is off its line; what it sent may still arrive.
    fn left(&mut self) {
        if let Some((_, line)) = self.current.take().and_then(|number| self.lines.get_mut(&number)) {
            line.left = true;
        }
    }

    /// The device gives its connection up; the bridge does not notice.
    fn leave(&mut self) {
        self.device.lose_connection();
        self.left();
    }

    /// Both sides see the connection break, and what was under way is lost.
    pub fn cut(&mut self) {
        if let Some(number) = self.current {
            self.close(number, false);
        }
    }

    /// The bridge ends a connection; `flush`: what it has to say is read first.
    fn close(&mut self, number: u64, flush: bool) {
        let Some((which, mut line)) = self.lines.remove(&number) else { return };
        let now = self.now;
        if flush && self.current == Some(number) && !line.silent {
            if self.bridge(which).conns.get(&number).is_some_and(|conn| conn.superseded)
                && let Some(conn) = self.bridge(which).conns.get_mut(&number)
            {
                let _ = conn.session.refuse(RefuseReason::Superseded, "a newer connection has taken over");
            }
            while self.bridge(which).send(number, &mut line, now) {}
            while let Some(frame) = line.receive_down() {
                if self.take_down(&frame).is_err() {
                    break;
                }
            }
        }
        self.bridge(which).conns.remove(&number);
        if self.current == Some(number) {
            // A half-open line tells the device nothing: it finds out by itself.
            if line.silent {
                line.left = true;
                self.lines.insert(number, (which, line));
                return;
            }
            self.current = None;
            self.device.lose_connection();
        }
    }

    fn send_down(&mut self) -> bool {
        let now = self.now;
        let Some((number, which)) = self.some_line() else { return false };
        let Some((_, mut line)) = self.lines.remove(&number) else { return false };
        let moved = self.bridge(which).send(number, &mut line, now);
        self.lines.insert(number, (which, line));
        if which < self.bridges.len() {
            let most = self.bridges[which].most_in_flight;
            // One change is always let through, however large.
            assert!(most <= WINDOW + MAX_TO_EDGE, "{most} bytes in flight");
        }
        moved
    }

    fn send_up(&mut self) -> bool {
        let Some((_, line)) = self.current.and_then(|number| self.lines.get_mut(&number)) else { return false };
        let session = self.device.daemon.as_mut().and_then(|daemon| daemon.session.as_mut());
        let Some(session) = session.filter(|_| line.takes_up()) else { return false };
        let Some(frame) = session.poll_transmit(self.now) else { return false };
        line.send_up(frame);
        true
    }

    fn receive_down(&mut self) -> bool {
        let Some((_, line)) = self.current.and_then(|number| self.lines.get_mut(&number)) else { return false };
        let Some(frame) = line.receive_down() else { return false };
        if self.take_down(&frame).is_err() {
            self.leave();
        }
        true
    }

    fn take_down(&mut self, frame: &str) -> Result<(), SessionError> {
        let session = self.device.daemon.as_mut().and_then(|daemon| daemon.session.as_mut());
        let Some(session) = session else { return Ok(()) };
        let taken = session.handle(frame, self.now);
        match &taken {
            Ok(()) | Err(SessionError::Refused { .. }) => {}
            Err(error) => panic!("the node refuses {frame:.300}: {error}"),
        }
        if self.device.drain().is_err() {
            assert!(self.full, "the store failed though nothing is wrong with it");
            self.device.crash();
            self.left();
        }
        let waiting = self.device.daemon.as_ref().map_or(0, |daemon| daemon.inbox.len());
        assert!(waiting < 1_000, "the window bounds what waits for the store");
        taken
    }

    fn receive_up(&mut self) -> bool {
        let Some((number, which)) = self.some_line() else { return false };
        let Some((_, line)) = self.lines.get_mut(&number) else { return false };
        let Some(frame) = line.receive_up() else {
            if line.left && !line.silent {
                // The end of the stream has arrived, too.
                self.lines.remove(&number);
                self.bridge(which).conns.remove(&number);
            }
            return false;
        };
        let now = self.now;
        let taken = self.bridge(which).receive(number, &frame, now);
        if let Some(conn) = self.bridge(which).conns.get_mut(&number) {
            let acked = std::mem::take(&mut conn.acked);
            if let Some(daemon) = self.device.daemon.as_ref().filter(|_| self.current == Some(number)) {
                let early = acked.iter().find(|seq| !daemon.committed.contains(seq));
                assert_eq!(early, None, "a change was acknowledged before its commit");
            }
        }
        match taken {
            Ok(()) => {}
            Err(SessionError::Refused { .. }) => self.close(number, true),
            Err(error) => panic!("the bridge refuses {frame:.300}: {error}"),
        }
        true
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
                // Nobody at either end.
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

    // The end.

    /// All faults cease; everything moves until nothing is left to do. Then both sides must agree.
    pub fn settle(&mut self) {
        self.api.down = false;
        self.full = false;
        self.device.disk_full(false);
        self.options.foreign = false;
        for bridge in self.bridges.iter_mut().filter(|bridge| bridge.lied_to) {
            bridge.relist(&self.api, false);
        }
        for _ in 0..RESTS {
            self.run();
            if self.device.daemon.is_some() && self.current.is_some() && self.differs().is_none() {
                return;
            }
            self.advance(Duration::from_secs(1));
        }
        panic!("no agreement: {}", self.differs().unwrap_or_else(|| "no connection".to_owned()));
    }

    /// Everything moves until nothing does. Returns the number of rounds.
    pub fn run(&mut self) -> usize {
        let mut rounds = 0;
        let mut idle = 0;
        // Which line or bridge moves is drawn each time.
        while idle < 12 * (1 + self.lines.len()) * self.bridges.len() {
            let moved = self.round();
            idle = if moved { 0 } else { idle + 1 };
            rounds += usize::from(moved);
            assert!(rounds < 100_000, "no rest");
        }
        rounds
    }

    /// At most one thing of each kind.
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
        moved |= self.write();
        moved
    }

    /// What the device and the API do not agree on.
    pub fn differs(&self) -> Option<String> {
        let skip = |name: &str| self.api.pods.get(name).is_some_and(|pod| pod.poison);
        let mut held = self.device.store().held().expect("reads");
        held.retain(|object| !(object.key.kind == "Pod" && skip(&object.key.name)));
        held.sort();
        let mut want: Vec<_> = wanted(&self.api).into_iter().map(|object| object.digest).collect();
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

    /// The connection breaks and comes again, to the same bridge. Returns bytes down and up.
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
