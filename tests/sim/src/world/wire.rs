//! Frames on their way between a world's device and its bridges, and the invariants that hold for each frame.

use std::time::Duration;

use edge_protocol::SessionError;
use edge_protocol::frame::MAX_TO_EDGE;
use edge_protocol::version::RefuseReason;

use super::World;
use crate::bridge::WINDOW;
use crate::line::Line;

impl World {
    pub(super) fn write(&mut self) -> bool {
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

    pub(super) fn some_line(&mut self) -> Option<(u64, usize)> {
        let at = self.rng.below(self.lines.len().max(1));
        self.lines.iter().nth(at).map(|(number, (which, _))| (*number, *which))
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

    /// The bridge ends a connection; `flush`: its pending frames are read first.
    pub(super) fn close(&mut self, number: u64, flush: bool) {
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
            // A half-open line gives the device no error: it finds out by its own timeout.
            if line.silent {
                line.left = true;
                self.lines.insert(number, (which, line));
                return;
            }
            self.current = None;
            self.device.lose_connection(self.now);
        }
    }

    pub(super) fn send_down(&mut self) -> bool {
        let now = self.now;
        let Some((number, which)) = self.some_line() else { return false };
        let Some((_, mut line)) = self.lines.remove(&number) else { return false };
        let moved = self.bridge(which).send(number, &mut line, now);
        self.lines.insert(number, (which, line));
        if which < self.bridges.len() {
            let most = self.bridges[which].most_in_flight;
            // One change is always let through, whatever its size.
            assert!(most <= WINDOW + MAX_TO_EDGE, "{most} bytes in flight");
        }
        moved
    }

    pub(super) fn send_up(&mut self) -> bool {
        let Some((_, line)) = self.current.and_then(|number| self.lines.get_mut(&number)) else { return false };
        let session = self.device.daemon.as_mut().and_then(|daemon| daemon.session.as_mut());
        let Some(session) = session.filter(|_| line.takes_up()) else { return false };
        let Some(frame) = session.poll_transmit(self.now) else { return false };
        line.send_up(frame);
        true
    }

    pub(super) fn receive_down(&mut self) -> bool {
        let Some((_, line)) = self.current.and_then(|number| self.lines.get_mut(&number)) else { return false };
        let Some(frame) = line.receive_down() else { return false };
        if self.take_down(&frame).is_err() {
            self.leave();
        }
        true
    }

    pub(super) fn take_down(&mut self, frame: &str) -> Result<(), SessionError> {
        let session = self.device.daemon.as_mut().and_then(|daemon| daemon.session.as_mut());
        let Some(session) = session else { return Ok(()) };
        let taken = session.handle(frame, self.now);
        match &taken {
            Ok(()) | Err(SessionError::Refused { .. }) => {}
            Err(error) => panic!("the node refuses {frame:.300}: {error}"),
        }
        if self.device.drain(self.now).is_err() {
            assert!(self.full, "the store failed though nothing is wrong with it");
            self.device.crash(self.now);
            self.left();
        }
        let waiting = self.device.daemon.as_ref().map_or(0, |daemon| daemon.inbox.len());
        assert!(waiting < 1_000, "the window bounds what waits for the store");
        taken
    }

    pub(super) fn receive_up(&mut self) -> bool {
        let Some((number, which)) = self.some_line() else { return false };
        let Some((_, line)) = self.lines.get_mut(&number) else { return false };
        let Some(frame) = line.receive_up() else {
            if line.left && !line.silent {
                // The end of the stream has arrived too.
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
}
