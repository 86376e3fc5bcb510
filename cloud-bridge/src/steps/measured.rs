//! Clock and records of steps.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Upper bounds of the counted lengths, in microseconds; longer ones are counted last.
const ENDS: [u64; 15] =
    [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 5_000_000];
/// Steps of at least this CPU time are recorded one by one, up to this number.
const LONG: Duration = Duration::from_millis(5);
const LONG_MAX: usize = 4096;
/// Interval of writing the file.
const WRITE: Duration = Duration::from_secs(1);
/// Name of the whole main task.
const MAIN: &str = "main";

/// Passed time and CPU time of the thread.
#[derive(Clone, Copy)]
struct Clock(Instant, Duration);

impl Clock {
    fn now() -> Self {
        // It works on every Linux that tokio supports.
        let cpu = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
        Self(Instant::now(), cpu)
    }
}

#[derive(Default)]
struct Counts {
    passed: [u64; ENDS.len() + 1],
    cpu: [u64; ENDS.len() + 1],
    sum: Duration,
}

impl Counts {
    fn add(&mut self, passed: Duration, cpu: Duration) {
        for (counts, took) in [(&mut self.passed, passed), (&mut self.cpu, cpu)] {
            let at = ENDS.partition_point(|end| u128::from(*end) < took.as_micros());
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
        }
        self.sum += cpu;
    }

    fn json(&self) -> Value {
        json!({"passed": self.passed, "cpu": self.cpu, "cpuSeconds": self.sum.as_secs_f64()})
    }
}

struct Long {
    number: u64,
    place: String,
    passed: Duration,
    cpu: Duration,
}

struct Book {
    file: Option<PathBuf>,
    written: Instant,
    open: Option<Clock>,
    all: Counts,
    places: BTreeMap<String, Counts>,
    long: VecDeque<Long>,
    numbers: u64,
}

thread_local! {
    static BOOK: RefCell<Book> = RefCell::new(Book {
        file: std::env::var_os("SAMPAN_STEPS").map(PathBuf::from),
        written: Instant::now(),
        open: None,
        all: Counts::default(),
        places: BTreeMap::new(),
        long: VecDeque::new(),
        numbers: 0,
    });
}

impl Book {
    fn add(&mut self, place: &str, since: Clock, whole: bool) {
        let now = Clock::now();
        let (passed, cpu) = (now.0 - since.0, now.1.saturating_sub(since.1));
        if whole {
            self.all.add(passed, cpu);
        }
        match self.places.get_mut(place) {
            Some(counts) => counts.add(passed, cpu),
            None => self.places.entry(place.to_owned()).or_default().add(passed, cpu),
        }
        if cpu >= LONG {
            self.numbers += 1;
            self.long.push_back(Long { number: self.numbers, place: place.to_owned(), passed, cpu });
            if self.long.len() > LONG_MAX {
                self.long.pop_front();
            }
        }
        if whole && now.0 - self.written >= WRITE {
            self.written = now.0;
            self.write();
        }
    }

    fn write(&self) {
        let Some(file) = &self.file else { return };
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let long = |one: &Long| json!([one.number, one.place, micros(one.passed), micros(one.cpu)]);
        let places: BTreeMap<&String, Value> =
            self.places.iter().map(|(place, counts)| (place, counts.json())).collect();
        let text = json!({
            "ends": ENDS, "all": self.all.json(), "places": places,
            "numbers": self.numbers, "long": self.long.iter().map(long).collect::<Vec<_>>(),
        });
        let part = file.with_extension("part");
        // Only a measurement: if this fails, the reader sees that the file is missing.
        if std::fs::write(&part, text.to_string()).is_ok() {
            let _ = std::fs::rename(&part, file);
        }
    }
}

pub(super) fn watch(builder: &mut tokio::runtime::Builder) {
    builder.on_before_task_poll(|_| BOOK.with_borrow_mut(|book| book.open = Some(Clock::now())));
    builder.on_after_task_poll(|task| {
        BOOK.with_borrow_mut(|book| {
            let at = task.spawned_at();
            let file = at.file().rsplit('/').take(3).collect::<Vec<_>>();
            let file: Vec<&str> = file.into_iter().rev().collect();
            if let Some(since) = book.open.take() {
                book.add(&format!("{}:{}", file.join("/"), at.line()), since, true);
            }
        });
    });
}

/// Measures the polls of the task that a runtime blocks on.
pub fn main<F: Future>(future: F) -> impl Future<Output = F::Output> {
    Measured { name: MAIN.to_owned(), whole: true, future: Box::pin(future) }
}

/// Measures the polls of a part of the main task.
pub fn part<F: Future>(name: &str, future: F) -> impl Future<Output = F::Output> {
    Measured { name: name.to_owned(), whole: false, future: Box::pin(future) }
}

struct Measured<F> {
    name: String,
    /// Whether it is not part of another step.
    whole: bool,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Measured<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let since = Clock::now();
        let polled = self.future.as_mut().poll(context);
        BOOK.with_borrow_mut(|book| book.add(&self.name, since, self.whole));
        polled
    }
}
