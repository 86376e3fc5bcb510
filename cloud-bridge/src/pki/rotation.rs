//! Rotation of the authority: a new one beside the old, which nodes learn to trust before the old one is removed. Pure.
//!
//! While it lasts, bridges trust certificates of both authorities. They show server certificates of the old one, which
//! every client trusts, and sign renewals of nodes with the new one. A renewal hands out both authorities together with
//! the certificate, so a node with a certificate of the new authority trusts both.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// State of the last rotation, as it is stored beside the authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotation {
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// When bridges begin to sign with the new authority: all must know it by then. In milliseconds since 1970.
    pub issue_from_ms: u64,
    /// Nodes spread their renewals over this time, in seconds.
    pub renew_within_secs: u64,
    /// When bridges trust the new authority alone: all are restarted by then. In milliseconds since 1970; none while the
    /// old one is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_ms: Option<u64>,
    /// The new authority, until it is stored in the place of the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Pair>,
}

/// An authority as PEM texts.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// Not derived: the key must not reach a log.
impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair")
    }
}

/// Authorities that a node trusts, as its certificate shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The old one alone.
    Old,
    Both,
    /// The new one alone.
    New,
}

impl Trust {
    pub fn text(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::Both => "both",
            Self::New => "new",
        }
    }
}

fn millis(time: SystemTime) -> u64 {
    let millis = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(millis).unwrap_or(u64::MAX)
}

impl Rotation {
    /// A rotation that begins now with this new authority.
    pub fn begin(next: Pair, now: SystemTime, delay: Duration, renew_within: Duration) -> Self {
        Self {
            began_ms: millis(now),
            issue_from_ms: millis(now + delay),
            renew_within_secs: renew_within.as_secs().max(1),
            finished_ms: None,
            next: Some(next),
        }
    }

    /// The same rotation after the old authority was removed. Bridges restart within `delay`.
    #[must_use]
    pub fn finish(&self, now: SystemTime, delay: Duration) -> Self {
        Self { finished_ms: Some(self.finished_ms.unwrap_or_else(|| millis(now + delay))), ..self.clone() }
    }

    /// Whether the old authority is still trusted.
    pub fn lasts(&self) -> bool {
        self.finished_ms.is_none()
    }

    /// Whether renewals are signed by the new authority.
    pub fn issues(&self, now: SystemTime) -> bool {
        self.lasts() && millis(now) >= self.issue_from_ms
    }

    /// What a node trusts that shows a certificate issued then. `by_next`: the new authority has signed it, while both
    /// are trusted.
    pub fn trust(&self, by_next: bool, issued: SystemTime) -> Trust {
        match self.finished_ms {
            None if by_next => Trust::Both,
            None => Trust::Old,
            Some(finished) if millis(issued) < finished => Trust::Both,
            Some(_) => Trust::New,
        }
    }

    /// What the bridge writes on the Node of a node that trusts these: good for this rotation alone.
    pub fn mark(&self, trust: Trust) -> String {
        format!("{}-{}", self.began_ms, trust.text())
    }

    /// What a Node with this mark trusts; `None` if the node has not connected since the rotation began.
    pub fn of_mark(&self, mark: &str) -> Option<Trust> {
        [Trust::Old, Trust::Both, Trust::New].into_iter().find(|trust| self.mark(*trust) == mark)
    }

    /// When such a node renews ahead of time: the pause before, and the time over which renewals spread. `None` if it
    /// has what it should have.
    pub fn renewal(&self, trust: Trust, now: SystemTime) -> Option<(Duration, Duration)> {
        let due = match trust {
            Trust::Old => true,
            Trust::Both => !self.lasts(),
            Trust::New => false,
        };
        let pause = self.finished_ms.unwrap_or(self.issue_from_ms).saturating_sub(millis(now));
        due.then(|| (Duration::from_millis(pause), Duration::from_secs(self.renew_within_secs)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn rotation() -> Rotation {
        let next = Pair { certificate: "c".into(), key: "k".into() };
        Rotation::begin(next, at(1_000), Duration::from_secs(60), Duration::from_secs(600))
    }

    #[test]
    fn nodes_renew_once_for_the_new_authority_and_once_without_the_old() {
        let during = rotation();
        assert_eq!((during.trust(false, at(5_000)), during.trust(true, at(0))), (Trust::Old, Trust::Both));
        let within = Duration::from_secs(600);
        assert_eq!(during.renewal(Trust::Old, at(1_020)), Some((Duration::from_secs(40), within)));
        assert_eq!(during.renewal(Trust::Old, at(9_000)), Some((Duration::ZERO, within)));
        assert_eq!(during.renewal(Trust::Both, at(9_000)), None);
        let after = during.finish(at(1_900), Duration::from_secs(100));
        assert_eq!((after.trust(false, at(1_999)), after.trust(false, at(2_000))), (Trust::Both, Trust::New));
        assert_eq!(after.renewal(Trust::Both, at(1_950)), Some((Duration::from_secs(50), within)));
        assert_eq!(after.renewal(Trust::Both, at(2_001)), Some((Duration::ZERO, within)));
        assert_eq!(after.renewal(Trust::New, at(2_001)), None);
        assert_eq!(after.finish(at(3_000), Duration::ZERO), after, "a repeated finish changes nothing");
    }

    #[test]
    fn new_authority_signs_when_all_bridges_know_it() {
        let during = rotation();
        assert!(!during.issues(at(1_059)) && during.issues(at(1_060)));
        assert!(!during.finish(at(1_070), Duration::ZERO).issues(at(1_080)), "then it is the only one");
    }

    #[test]
    fn marks_of_an_earlier_rotation_do_not_count() {
        for trust in [Trust::Old, Trust::Both, Trust::New] {
            assert_eq!(rotation().of_mark(&rotation().mark(trust)), Some(trust));
        }
        let earlier = Rotation { began_ms: 1, ..rotation() };
        assert_eq!(rotation().of_mark(&earlier.mark(Trust::Both)), None);
    }

    #[test]
    fn stored_form_is_read_again_and_the_key_is_not_logged() {
        let text = serde_json::to_string(&rotation()).unwrap();
        assert_eq!(serde_json::from_str::<Rotation>(&text).unwrap(), rotation());
        let shown = format!("{:?}", Pair { certificate: "c".into(), key: "secret".into() });
        assert!(!shown.contains("secret"), "{shown}");
    }
}
