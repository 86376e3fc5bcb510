//! Answers to joins that may not have arrived. Pure: a request with the same token, name and key gets the same answer
//! for a while, so an answer that is lost on a bad line does not use up the token.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use serde_json::Value;

/// Time for which a node may repeat its request.
const KEPT: Duration = Duration::from_secs(600);
/// Maximum number of answers, of some kilobytes each. The oldest is removed first.
const MOST: usize = 1024;

/// Digest of all fields of a request to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said([u8; 32]);

impl Said {
    pub(super) fn of(token: &str, node: &str, csr: &str) -> Self {
        // Valid values of these three contain no line feed.
        let digest = digest(&SHA256, format!("{token}\n{node}\n{csr}").as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

/// Progress of a join.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Joined {
    /// Its token is used up.
    Redeemed,
    Answered(Value),
}

/// Joins at this process, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Answered(VecDeque<(Instant, Said, Joined)>);

impl Answered {
    pub(super) fn keep(&mut self, now: Instant, said: Said, joined: Joined) {
        self.forget(now);
        self.0.retain(|(_, of, _)| *of != said);
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((now, said, joined));
    }

    pub(super) fn find(&mut self, now: Instant, said: Said) -> Option<Joined> {
        self.forget(now);
        self.0.iter().find(|(_, of, _)| *of == said).map(|(.., joined)| joined.clone())
    }

    fn forget(&mut self, now: Instant) {
        while self.0.front().is_some_and(|(at, ..)| now.saturating_duration_since(*at) >= KEPT) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_join_has_the_same_answer_for_a_while() {
        let (mut answered, now) = (Answered::default(), Instant::now());
        let said = Said::of("t", "n", "c");
        answered.keep(now, said, Joined::Redeemed);
        assert_eq!(answered.find(now, said), Some(Joined::Redeemed));
        answered.keep(now, said, Joined::Answered("yes".into()));
        assert_eq!(answered.find(now, said), Some(Joined::Answered("yes".into())));
        for other in [Said::of("u", "n", "c"), Said::of("t", "m", "c"), Said::of("t", "n", "d")] {
            assert_eq!(answered.find(now, other), None);
        }
        assert_eq!(answered.find(now + KEPT, said), None);
    }

    #[test]
    fn kept_answers_are_bounded() {
        let (mut answered, now) = (Answered::default(), Instant::now());
        for number in 0..MOST + 5 {
            answered.keep(now, Said::of(&number.to_string(), "n", "c"), Joined::Redeemed);
        }
        assert_eq!(answered.0.len(), MOST);
        assert_eq!(answered.find(now, Said::of("0", "n", "c")), None);
    }
}
