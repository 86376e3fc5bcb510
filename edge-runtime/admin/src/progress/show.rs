//! Text, rate and pace of a progress. Pure.

use std::time::Duration;

use crate::columns::one_line;

/// What one look has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Bytes of each layer, and whether it is on the disk.
    pub(crate) layers: Vec<(u64, bool)>,
    /// Bytes of the download in progress.
    pub(crate) partial: u64,
}

impl Seen {
    pub(crate) fn total(&self) -> u64 {
        sum(self.layers.iter())
    }

    /// Bytes that are here.
    pub(crate) fn bytes(&self) -> u64 {
        sum(self.layers.iter().filter(|(_, is_here)| *is_here)).saturating_add(self.partial).min(self.total())
    }
}

/// An archive may give its layers any size.
fn sum<'a>(layers: impl Iterator<Item = &'a (u64, bool)>) -> u64 {
    layers.fold(0_u64, |sum, (size, _)| sum.saturating_add(*size))
}

/// `web:1: layer 2 of 3, 42 %, 2.1 MB of 5.0 MB, 310 kB/s`
pub(crate) fn line(what: &str, seen: &Seen, rate: Option<u64>) -> String {
    let (bytes, total) = (seen.bytes(), seen.total());
    let here = seen.layers.iter().filter(|(_, is_here)| *is_here).count();
    let layer = (here + 1).min(seen.layers.len());
    let percent = bytes.saturating_mul(100).checked_div(total).unwrap_or(0);
    let rate = rate.map(|rate| format!(", {}/s", size(rate))).unwrap_or_default();
    let what = one_line(what);
    format!("{what}: layer {layer} of {}, {percent} %, {} of {}{rate}", seen.layers.len(), size(bytes), size(total))
}

/// Decimal units, as image tools count.
fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{} kB", bytes / 1000),
        1_000_000..1_000_000_000 => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
        _ => format!("{}.{:02} GB", bytes / 1_000_000_000, bytes / 10_000_000 % 100),
    }
}

/// Bytes per second over the last seconds.
#[derive(Default)]
pub(crate) struct Rate {
    /// Time and bytes, oldest first.
    looks: Vec<(Duration, u64)>,
}

impl Rate {
    const OVER: Duration = Duration::from_secs(5);

    /// Adds a look and returns the rate; unknown for the first second.
    pub(crate) fn after(&mut self, at: Duration, bytes: u64) -> Option<u64> {
        self.looks.push((at, bytes));
        // One that is older than the span stays, so that the span is covered.
        while self.looks.get(1).is_some_and(|(time, _)| at.saturating_sub(*time) >= Self::OVER) {
            self.looks.remove(0);
        }
        let (then, before) = self.looks[0];
        let millis = u64::try_from(at.saturating_sub(then).as_millis()).unwrap_or(u64::MAX);
        (millis >= 1000).then(|| bytes.saturating_sub(before).saturating_mul(1000) / millis)
    }
}

/// When a line is shown.
pub(crate) struct Pace {
    is_terminal: bool,
    last: Duration,
}

impl Pace {
    /// Where lines stay, as in a log.
    const LOG: Duration = Duration::from_secs(10);

    pub(crate) fn new(is_terminal: bool) -> Self {
        Self { is_terminal, last: Duration::ZERO }
    }

    /// Between two looks, in milliseconds.
    pub(crate) fn look_every(&self) -> u16 {
        if self.is_terminal { 300 } else { 1000 }
    }

    /// On a terminal with each look, else every ten seconds: what takes less says nothing.
    pub(crate) fn is_due(&mut self, at: Duration) -> bool {
        let is_due = self.is_terminal || at.saturating_sub(self.last) >= Self::LOG;
        if is_due {
            self.last = at;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_counts_layers_and_the_download() {
        let seen = Seen { layers: vec![(1_000_000, true), (3_000_000, false), (1_000_000, false)], partial: 1_100_000 };
        assert_eq!(line("web:1", &seen, Some(310_500)), "web:1: layer 2 of 3, 42 %, 2.1 MB of 5.0 MB, 310 kB/s");
        let done = Seen { layers: vec![(999, true)], partial: 999 };
        assert_eq!(line("a", &done, None), "a: layer 1 of 1, 100 %, 999 B of 999 B");
        assert_eq!(line("a", &Seen::default(), None), "a: layer 0 of 0, 0 %, 0 B of 0 B");
        assert_eq!(size(2_340_000_000), "2.34 GB");
    }

    #[test]
    fn hostile_name_and_sizes_make_one_harmless_line() {
        let seen = Seen { layers: vec![(u64::MAX, true), (u64::MAX, true)], partial: 7 };
        assert_eq!((seen.bytes(), seen.total()), (u64::MAX, u64::MAX));
        let shown = line("a\n\u{1b}[2J", &seen, None);
        assert!(shown.starts_with("a  [2J: layer 2 of 2, "), "{shown}");
    }

    #[test]
    fn rate_is_that_of_the_last_seconds() {
        let (mut rate, second) = (Rate::default(), Duration::from_secs(1));
        assert_eq!(rate.after(Duration::ZERO, 5000), None);
        assert_eq!(rate.after(second / 2, 5000), None);
        assert_eq!(rate.after(second, 6000), Some(1000));
        for at in 2..20 {
            rate.after(second * at, 6000 + 100 * u64::from(at));
        }
        assert_eq!(rate.after(second * 20, 8000), Some(100));
        assert!(rate.looks.len() < 10);
    }

    #[test]
    fn log_gets_a_line_every_ten_seconds() {
        let (mut log, mut terminal) = (Pace::new(false), Pace::new(true));
        let due: Vec<u64> = (0..35).filter(|at| log.is_due(Duration::from_secs(*at))).collect();
        assert_eq!(due, [10, 20, 30]);
        assert!((0..3).all(|at| terminal.is_due(Duration::from_millis(at))));
    }
}
