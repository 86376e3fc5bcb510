//! Rates of requests to enrol, in windows of a minute. Only holders of a claim token are counted, so others cannot use
//! the rates up. Pure: time is passed in.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::accept::Source;

const WINDOW: Duration = Duration::from_secs(60);
/// Requests of one address: boards of a site may share one, and each asks again until it is approved.
const ASKS: u32 = 600;
/// New requests of one address.
const NEW: u32 = 10;
/// New requests with one claim token.
const NEW_OF_TOKEN: u32 = 600;
/// Maximum number of counters of each kind. Addresses and tokens beyond it wait for the next window.
const COUNTERS: usize = 4096;

/// Counters of the present window.
#[derive(Debug, Default)]
pub(super) struct Rates {
    since: Option<Instant>,
    asks: HashMap<Source, u32>,
    new: HashMap<Source, u32>,
    tokens: HashMap<String, u32>,
}

impl Rates {
    /// Counts a request; false if this address has to wait.
    pub(super) fn ask(&mut self, now: Instant, source: Source) -> bool {
        self.turn(now);
        take(&mut self.asks, source, ASKS)
    }

    /// Counts a request that is new, made with the claim token of this name; false if it has to wait.
    pub(super) fn new_request(&mut self, now: Instant, source: Source, token: &str) -> bool {
        self.turn(now);
        take(&mut self.new, source, NEW) && take(&mut self.tokens, token.to_owned(), NEW_OF_TOKEN)
    }

    fn turn(&mut self, now: Instant) {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            *self = Self { since: Some(now), ..Self::default() };
        }
    }
}

fn take<K: Eq + Hash>(counters: &mut HashMap<K, u32>, key: K, most: u32) -> bool {
    if counters.len() >= COUNTERS && !counters.contains_key(&key) {
        return false;
    }
    let count = counters.entry(key).or_default();
    *count = count.saturating_add(1);
    *count <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        Source::of([192, 0, 2, last].into())
    }

    #[test]
    fn e6_new_requests_of_one_address_are_limited_for_a_minute() {
        let (mut rates, now) = (Rates::default(), Instant::now());
        let passed =
            |rates: &mut Rates, now, last| (0..30).filter(|_| rates.new_request(now, source(last), "t")).count();
        assert_eq!(passed(&mut rates, now, 1), 10);
        assert_eq!(passed(&mut rates, now, 2), 10, "another address");
        assert_eq!(passed(&mut rates, now + WINDOW / 2, 1), 0);
        assert_eq!(passed(&mut rates, now + WINDOW, 1), 10);
    }

    #[test]
    fn requests_of_one_token_and_of_one_address_are_limited() {
        let (mut rates, now) = (Rates::default(), Instant::now());
        let addresses = || (0..=255).flat_map(|last| std::iter::repeat_n(source(last), 10));
        let passed = addresses().filter(|source| rates.new_request(now, *source, "t")).count();
        assert_eq!(passed, 600);
        let asked = (0..700).filter(|_| rates.ask(now, source(1))).count();
        assert_eq!(asked, 600);
    }

    #[test]
    fn counters_are_bounded() {
        let mut counters = HashMap::new();
        assert!((0..COUNTERS).all(|key| take(&mut counters, key, 1)));
        assert!(!take(&mut counters, COUNTERS, 1));
        assert!(!take(&mut counters, 0, 1) && counters.len() == COUNTERS);
    }
}
