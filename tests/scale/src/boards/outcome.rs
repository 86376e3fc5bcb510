//! Times, counts and failures of the boards of one token. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// Maximum number of reasons that are printed, of any number of failures.
const REASONS: usize = 8;

/// What became of one board.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Time from its start to its certificate, or why it did not get one.
    pub(crate) took: Result<Duration, String>,
    /// Number of requests.
    pub(crate) asks: u64,
    /// Those of them that were refused because too many new boards came at once.
    pub(crate) busy: u64,
}

impl Default for Asked {
    fn default() -> Self {
        Self { took: Err("has no answer".to_owned()), asks: 0, busy: 0 }
    }
}

/// What became of all boards of a token.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Outcome {
    boards: usize,
    enrolled: usize,
    /// Seconds from the start of a board to its certificate, of those that have one.
    p50: f64,
    p99: f64,
    worst: f64,
    /// Sums over all boards, as in [`Asked`].
    asks: u64,
    busy: u64,
    /// Number of boards without a certificate, by reason.
    failures: BTreeMap<String, usize>,
}

impl Outcome {
    pub(crate) fn of(asked: &[Asked]) -> Self {
        let mut took: Vec<Duration> = asked.iter().filter_map(|one| one.took.as_ref().ok().copied()).collect();
        took.sort_unstable();
        let mut failures: BTreeMap<String, usize> = BTreeMap::new();
        for reason in asked.iter().filter_map(|one| one.took.as_ref().err()) {
            let is_new = !failures.contains_key(reason);
            let reason = if is_new && failures.len() >= REASONS { "other reasons" } else { reason.as_str() };
            *failures.entry(reason.to_owned()).or_default() += 1;
        }
        Self {
            boards: asked.len(),
            enrolled: took.len(),
            p50: percentile(&took, 50),
            p99: percentile(&took, 99),
            worst: percentile(&took, 100),
            asks: asked.iter().map(|one| one.asks).sum(),
            busy: asked.iter().map(|one| one.busy).sum(),
            failures,
        }
    }

    /// Number of boards without a certificate.
    pub(crate) fn failed(&self) -> usize {
        self.boards - self.enrolled
    }
}

/// Seconds; 0 of nothing.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Asked {
        Asked { took: Ok(Duration::from_secs(seconds)), asks: 2, busy: 1 }
    }

    fn without(reason: &str) -> Asked {
        Asked { took: Err(reason.to_owned()), asks: 3, busy: 0 }
    }

    #[test]
    fn times_are_those_of_boards_with_a_certificate() {
        let asked: Vec<Asked> = (1..=200).rev().map(after).chain([without("403: used up")]).collect();
        let outcome = Outcome::of(&asked);
        assert_eq!((outcome.boards, outcome.enrolled, outcome.failed()), (201, 200, 1));
        assert_eq!([outcome.p50, outcome.p99, outcome.worst], [101.0, 199.0, 200.0]);
        assert_eq!((outcome.asks, outcome.busy), (403, 200));
        assert_eq!(outcome.failures, BTreeMap::from([("403: used up".to_owned(), 1)]));
        assert_eq!(Outcome::of(&[]).worst, 0.0);
    }

    #[test]
    fn number_of_reasons_is_bounded() {
        let asked: Vec<Asked> = (0..20).map(|number| without(&format!("reason {number}"))).collect();
        let outcome = Outcome::of(&asked);
        assert_eq!(outcome.failures.len(), REASONS + 1);
        assert_eq!(outcome.failures.values().sum::<usize>(), outcome.failed());
    }
}
