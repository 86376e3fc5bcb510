//! State of the kernel's rules, and when to restore rules that other programs have deleted.

use std::io;
use std::time::Duration;

use crate::net::firewall::others::Blocking;
use crate::net::netlink::Socket;
use crate::pod::clock::Mono;

/// Between two repairs: doubled each time that one follows soon, up to the second one.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_AT_MOST: Duration = Duration::from_secs(60);
/// Interval of checks of other firewalls.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(in crate::node) struct KernelRules {
    /// Sockets for queries about rules, and about links.
    pub(super) sockets: Option<(Socket, Socket)>,
    /// Number of the rules when all of ours were there.
    seen: Option<u32>,
    repairs: Repairs,
    pub(super) others: Others,
    /// This kernel has no nftables: each question would have it look for a module.
    pub(super) absent: bool,
}

impl KernelRules {
    /// Whether to look for our tables. A change of ours that is under way ends with another number of the rules.
    pub(super) fn is_due(&self, generation: u32, changing: bool, now: Mono) -> bool {
        !changing && self.seen != Some(generation) && self.repairs.may(now)
    }

    /// Takes the names of missing tables, which are restored. Returns a message about them.
    pub(super) fn looked(&mut self, generation: u32, missing: &[String], now: Mono) -> Option<String> {
        if missing.is_empty() {
            self.seen = Some(generation);
            return None;
        }
        self.repairs.note(now);
        Some(format!("the nft tables {} were deleted, and are put back", missing.join(" and ")))
    }
}

/// Whether one of these chains is missing, each with its family (`true` for IPv6). If a check fails, the chain counts
/// as found.
pub(super) fn is_missing<'a>(
    mut chains: impl Iterator<Item = (bool, &'a str)>,
    mut has: impl FnMut(bool, &str) -> io::Result<bool>,
) -> bool {
    chains.any(|(v6, chain)| !has(v6, chain).unwrap_or(true))
}

/// Time of the next repair: another program may delete our tables again and again.
#[derive(Debug, Default)]
struct Repairs {
    last: Option<Mono>,
    pause: Duration,
}

impl Repairs {
    fn may(&self, now: Mono) -> bool {
        self.last.is_none_or(|last| now >= last.after(self.pause))
    }

    fn note(&mut self, now: Mono) {
        let soon = self.last.is_some_and(|last| now < last.after(2 * AGAIN_AT_MOST));
        self.pause = if soon { (self.pause * 2).min(AGAIN_AT_MOST) } else { AGAIN };
        self.last = Some(now);
    }
}

/// Chains of other firewalls: when they are checked, and the last result.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Number of the rules at the last look, and when it was.
    last: Option<(u32, Mono)>,
    running: bool,
    told: Vec<Blocking>,
}

impl Others {
    /// Whether a look is due, which is then under way. Rules of ours have the same number, so it is not every time.
    pub(super) fn begin(&mut self, generation: u32, now: Mono) -> bool {
        let due = self.last.is_none_or(|(seen, at)| seen != generation && now >= at.after(BETWEEN_LOOKS));
        if self.running || !due {
            return false;
        }
        (self.last, self.running) = (Some((generation, now)), true);
        true
    }

    /// Returns the new ones of the found chains.
    pub(super) fn done(&mut self, found: Vec<Blocking>) -> Vec<Blocking> {
        self.running = false;
        let old = std::mem::replace(&mut self.told, found);
        self.told.iter().filter(|one| !old.contains(one)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_looked_for_until_all_are_there() {
        let at = |second: u64| Mono::default().after(Duration::from_secs(second));
        let mut rules = KernelRules::default();
        assert!(rules.is_due(1, false, at(0)) && !rules.is_due(1, true, at(0)), "not during a change");
        assert_eq!(rules.looked(1, &[], at(0)), None);
        assert!(!rules.is_due(1, false, at(60)), "nothing has changed");
        assert!(rules.is_due(0, false, at(0)), "the number may have wrapped around");
        let lost = ["services-b0".to_owned(), "policies-b0".to_owned()];
        let text = rules.looked(2, &lost, at(60)).unwrap();
        assert_eq!(text, "the nft tables services-b0 and policies-b0 were deleted, and are put back");
        assert!(!rules.is_due(2, false, at(60)), "no repair follows at once");
        assert!(rules.is_due(2, false, at(61)), "it may not have worked");
        assert_eq!(rules.looked(3, &[], at(61)), None);
        assert!(!rules.is_due(3, false, at(62)) && rules.is_due(4, false, at(62)));
    }

    #[test]
    fn table_is_missing_without_its_chain_in_one_family() {
        let chains = [(false, "state-1"), (true, "state-1")];
        assert!(!is_missing(chains.into_iter(), |_, _| Ok(true)));
        assert!(is_missing(chains.into_iter(), |v6, chain| Ok(!v6 || chain != "state-1")));
        assert!(is_missing(chains.into_iter(), |v6, _| Ok(v6)));
        assert!(!is_missing(chains.into_iter(), |_, _| Err(io::ErrorKind::OutOfMemory.into())), "it is not known");
        assert!(!is_missing([].into_iter(), |_, _| Ok(false)), "there should be none");
    }

    #[test]
    fn repeated_deletions_are_restored_with_a_delay() {
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

    #[test]
    fn deletion_two_minutes_after_a_repair_is_another_time() {
        let at = |second: u64| Mono::default().after(Duration::from_secs(second));
        for (second, pause) in [(119, 2), (120, 1)] {
            let mut repairs = Repairs::default();
            repairs.note(at(0));
            repairs.note(at(second));
            assert!(!repairs.may(at(second + pause - 1)) && repairs.may(at(second + pause)), "{second} s");
            assert!(!repairs.may(at(0)), "not by a reading that is older");
        }
    }

    #[test]
    fn other_firewalls_are_looked_at_when_rules_change() {
        let at = |second: u64| Mono::default().after(Duration::from_secs(second));
        let mut others = Others::default();
        assert!(others.begin(1, at(0)));
        assert!(!others.begin(2, at(20)), "one look at a time");
        let listed = "chain forward {\ntype filter hook forward priority 0; policy drop;\n}\n";
        let found = crate::net::firewall::others::blocking("inet", "filter", listed, "b0");
        assert_eq!((found.len(), others.done(found.clone()).len()), (1, 1));
        assert!(!others.begin(1, at(20)), "nothing has changed");
        assert!(others.begin(2, at(20)) && others.done(found.clone()).is_empty(), "told once");
        assert!(!others.begin(3, at(21)) && others.begin(3, at(25)));
        assert!(others.done(Vec::new()).is_empty());
        assert!(others.begin(4, at(40)) && others.done(found).len() == 1, "it came back");
    }
}
