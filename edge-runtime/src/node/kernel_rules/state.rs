//! What is known of the kernel's rules, and when those that others have deleted may be put back.

use std::time::Duration;

use crate::net::netlink::Socket;
use crate::pod::clock::Mono;

/// Between two repairs: doubled each time that one follows soon, up to the second one.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_AT_MOST: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(in crate::node) struct KernelRules {
    /// To ask about rules, and about links.
    pub(super) sockets: Option<(Socket, Socket)>,
    /// Number of the rules when all of ours were there.
    pub(super) seen: Option<u32>,
    pub(super) repairs: Repairs,
    /// This kernel has no nftables: each question would have it look for a module.
    pub(super) absent: bool,
}

/// When the next repair may be: somebody may delete our tables for ever.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    last: Option<Mono>,
    pause: Duration,
}

impl Repairs {
    pub(super) fn may(&self, now: Mono) -> bool {
        self.last.is_none_or(|last| now >= last.after(self.pause))
    }

    pub(super) fn note(&mut self, now: Mono) {
        let soon = self.last.is_some_and(|last| now < last.after(2 * AGAIN_AT_MOST));
        self.pause = if soon { (self.pause * 2).min(AGAIN_AT_MOST) } else { AGAIN };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_deletes_for_ever_is_not_answered_for_ever_at_once() {
        let at = |second: u64| Mono::default().after(Duration::from_secs(second));
        let mut repairs = Repairs::default();
        assert!(repairs.may(at(0)));
        let mut now = 100;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            repairs.note(at(now));
            let pause = (0..).find(|pause| repairs.may(at(now + pause))).unwrap();
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        repairs.note(at(now + 1000));
        assert!(repairs.may(at(now + 1001)), "that was another time");
    }
}
