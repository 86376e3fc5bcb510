//! How many frames a peer may send that carry nothing: PING, SETTINGS, WINDOW_UPDATE, RST_STREAM, PRIORITY, CONTINUATION,
//! unknown ones, crumbs of DATA. Each costs this program more than the peer.

use std::time::Instant;

use sampan_nghttp2::{Fatal, Frame, Limits, frame};

/// A message of 4 MiB needs some 600 of them, when its receiver opens its window and measures the bandwidth with each frame.
const BURST: u32 = 2_000;
const PER_SECOND: u32 = 200;
/// Allowance for each call: grpc-go measures the bandwidth with a PING after each, and opens its windows.
const PER_CALL: u32 = 8;
/// Less in a frame than its head and the work on it are worth.
const CRUMB: usize = 16;

/// nghttp2's own bounds, under which proper peers stay far.
pub(super) const LIMITS: Limits = Limits {
    acks: 64,
    settings: 16,
    continuations: 4,
    resets: (200, 50),
    glitches: (200, 20),
    // Fields that come again are few here, and a connection seldom has many calls.
    table: 0,
};

#[derive(Debug)]
pub(super) struct Flood {
    left: u32,
    since: Instant,
}

impl Flood {
    pub(super) const fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    pub(super) fn frame(&mut self, now: Instant, frame: Frame) -> Result<(), Fatal> {
        let carries = match frame.kind {
            frame::DATA => frame.length >= CRUMB || frame.flags & frame::END_STREAM != 0,
            frame::HEADERS => true,
            _ => false,
        };
        if carries { Ok(()) } else { self.count(now) }
    }

    /// A call was made as it should be.
    pub(super) fn call(&mut self) {
        self.left = self.left.saturating_add(PER_CALL).min(BURST);
    }

    /// One thing that carries nothing.
    pub(super) fn count(&mut self, now: Instant) -> Result<(), Fatal> {
        let seconds = u32::try_from(now.saturating_duration_since(self.since).as_secs()).unwrap_or(u32::MAX);
        if seconds > 0 {
            self.left = self.left.saturating_add(seconds.saturating_mul(PER_SECOND)).min(BURST);
            self.since = now;
        }
        self.left = self.left.checked_sub(1).ok_or(Fatal)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PING: Frame = Frame { kind: 6, flags: 0, stream: 0, length: 8 };

    #[test]
    fn frames_that_carry_nothing_run_out_and_come_back() {
        let start = Instant::now();
        let mut flood = Flood::new(start);
        let pings = |flood: &mut Flood, now| (0..u32::MAX).take_while(|_| flood.frame(now, PING).is_ok()).count();
        assert_eq!(pings(&mut flood, start), 2_000);
        assert_eq!(pings(&mut flood, start + Duration::from_secs(3)), 600);
        assert_eq!(pings(&mut flood, start + Duration::from_secs(3_600)), 2_000);
    }

    #[test]
    fn each_call_permits_some_control_frames() {
        let now = Instant::now();
        let mut flood = Flood::new(now);
        for _ in 0..10_000 {
            for _ in 0..8 {
                assert_eq!(flood.frame(now, PING), Ok(()));
            }
            flood.call();
        }
    }

    #[test]
    fn frames_with_content_do_not_count() {
        let now = Instant::now();
        let mut flood = Flood::new(now);
        for _ in 0..10_000 {
            for (kind, flags, length) in
                [(frame::DATA, 0, 16), (frame::DATA, frame::END_STREAM, 0), (frame::HEADERS, 0, 1)]
            {
                assert_eq!(flood.frame(now, Frame { kind, flags, stream: 1, length }), Ok(()));
            }
        }
        let crumbs = (0..u32::MAX)
            .take_while(|_| flood.frame(now, Frame { kind: frame::DATA, flags: 0, stream: 1, length: 1 }).is_ok());
        assert_eq!(crumbs.count(), 2_000);
    }
}
