//! One line for each attack, and the limits that it exceeded.

use std::time::Duration;

use crate::siege::AFTERWARDS;

/// Number of writes from which a 99th percentile is one, and not the worst of a few.
const ENOUGH: usize = 100;
/// Limit of each single write beside the hour of attacks.
const MOST: Duration = Duration::from_secs(1);

/// Limits for honest users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Limit of the latency of their writes, beside each attack with its deletion. `None`: users and nodes may fail
    /// until the attacks are over.
    pub(crate) p99: Option<Duration>,
    /// Limit of the growth of the bridge's resident memory at any time, in KiB.
    pub(crate) growth_kib: u64,
}

/// Latencies, sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// These and others.
    fn with(&self, others: &Self) -> Self {
        Self::new([self.0.as_slice(), &others.0].concat())
    }

    pub(crate) fn part(&self, percent: usize) -> Duration {
        self.0.get((self.0.len() * percent / 100).min(self.0.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    fn columns(&self) -> String {
        let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1000.0);
        format!("{:>8} {:>8} {:>8}", ms(self.part(50)), ms(self.part(99)), ms(self.part(100)))
    }
}

/// Usage of the bridge's process; memory in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub(crate) rss: u64,
    pub(crate) pss: u64,
    /// Maximum resident memory since the attack began.
    pub(crate) peak: u64,
    /// CPU time since its start: unlike waits, it does not depend on other programs of the host.
    pub(crate) cpu: Duration,
}

/// Results of one attack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) attack: String,
    pub(crate) requests: u64,
    /// Number of answers with 2xx, if the attack reads answers.
    pub(crate) accepted: u64,
    pub(crate) writes: Times,
    pub(crate) lists: Times,
    /// Times from a write until a watch showed it.
    pub(crate) watch: Times,
    /// Number of honest requests that were refused or not answered, and the first of these answers.
    pub(crate) failed: (usize, String),
    pub(crate) start: Look,
    pub(crate) end: Look,
    /// Errors that the attacker's program reports for its honest nodes.
    pub(crate) wrong: Vec<String>,
}

impl Row {
    /// The exceeded limits; memory is compared with that before all attacks. A row of few writes, as of a deletion that
    /// takes half a second, counts with those of the row before it.
    pub(crate) fn breaks(&self, bounds: Bounds, before: Look, last: Option<&Self>) -> Vec<String> {
        let few = last.filter(|_| self.writes.count() < ENOUGH);
        let p99 = few.map_or_else(|| self.writes.clone(), |last| last.writes.with(&self.writes)).part(99);
        let most = self.writes.part(100);
        let growth = self.end.peak.saturating_sub(before.rss);
        let mut broken = if bounds.p99.is_some() { self.wrong.clone() } else { Vec::new() };
        if let Some(bound) = bounds.p99.filter(|bound| p99 > *bound) {
            broken.push(format!("p99 of writes {p99:?}, bound {bound:?}"));
        }
        if bounds.p99.is_some() && most > MOST {
            broken.push(format!("a write took {most:?}, bound {MOST:?}"));
        }
        if growth > bounds.growth_kib {
            broken.push(format!("memory grew by {growth} KiB, bound {}", bounds.growth_kib));
        }
        let quiet = self.attack == AFTERWARDS;
        if quiet && self.writes.count() == 0 {
            broken.push("no write was answered".to_owned());
        }
        if self.failed.0 > 0 && (quiet || bounds.p99.is_some()) {
            broken.push(format!("{} honest requests failed: {}", self.failed.0, self.failed.1));
        }
        broken.iter().map(|broken| format!("{}: {broken}", self.attack)).collect()
    }
}

/// Latencies in ms, memory in MiB.
pub(crate) const HEAD: &str = "attack                                   requests accepted  writes   write p50      p99      max  list p50      p99      max  \
                               seen p50      p99      max  failed  RSS start   peak    end  PSS end   CPU s";

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |kib: u64| kib as f64 / 1024.0;
        write!(
            f,
            "{:<40} {:>8} {:>8} {:>7}    {}  {}  {} {:>7}  {:>9.1} {:>6.1} {:>6.1}  {:>7.1} {:>7.2}",
            self.attack,
            self.requests,
            self.accepted,
            self.writes.count(),
            self.writes.columns(),
            self.lists.columns(),
            self.watch.columns(),
            self.failed.0,
            mib(self.start.rss),
            mib(self.end.peak),
            mib(self.end.rss),
            mib(self.end.pss),
            self.end.cpu.saturating_sub(self.start.cpu).as_secs_f64(),
        )
    }
}

#[test]
fn a_row_tells_what_it_breaks() {
    let bounds = Bounds { p99: Some(Duration::from_millis(100)), growth_kib: 64 };
    let before = Look { rss: 100, ..Look::default() };
    let mut row = Row { attack: "flood".to_owned(), ..Row::default() };
    row.end.peak = 164;
    row.writes = Times::new((1..=100).map(Duration::from_millis).collect());
    assert_eq!((row.writes.part(50), row.writes.part(100)), (Duration::from_millis(51), Duration::from_millis(100)));
    assert!(row.breaks(bounds, before, None).is_empty());
    row.end.peak = 165;
    row.writes = Times::new((1..=100).map(|ms| Duration::from_millis(2 * ms)).collect());
    row.failed = (1, "429".to_owned());
    row.wrong = vec!["a node was lost".to_owned()];
    assert_eq!(row.breaks(bounds, before, None).len(), 4);
    assert_eq!(row.breaks(Bounds { p99: None, ..bounds }, before, None).len(), 1);
}

#[test]
fn few_writes_count_with_those_before_and_none_takes_a_second() {
    let bounds = Bounds { p99: Some(Duration::from_millis(100)), growth_kib: 64 };
    let row = |times: &[u64]| Row {
        writes: Times::new(times.iter().copied().map(Duration::from_millis).collect()),
        ..Row::default()
    };
    let breaks = |last: &Row, row: &Row| row.breaks(bounds, Look::default(), Some(last)).len();
    let (fast, slow) = (row(&[10; 300]), row(&[150; 300]));
    assert_eq!((breaks(&fast, &row(&[150])), breaks(&slow, &row(&[150]))), (0, 1));
    assert_eq!((breaks(&fast, &row(&[10, 150, 150, 150, 150])), breaks(&slow, &fast)), (1, 0));
    assert_eq!(breaks(&fast, &row(&[1_001])), 1);
}
