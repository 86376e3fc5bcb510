//! How far a property is: when it is read, reported and written next, and the value in between. Pure; the clock is given.

use std::time::Duration;

use tokio::time::Instant;

use crate::plan::{Plan, Property};

const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_AT_MOST: Duration = Duration::from_secs(30);

/// Back-off of a failed operation: the next attempt is not before `at`.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    pub at: Instant,
    pause: Duration,
}

impl Retry {
    #[must_use]
    pub const fn at(at: Instant) -> Self {
        Self { at, pause: Duration::ZERO }
    }

    pub fn again(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_AT_MOST);
        self.at = now + self.pause;
    }
}

/// A read value, as the property's text, and its time in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub text: String,
    pub at: u64,
}

#[derive(Clone, Debug)]
pub struct Progress {
    pub collect_at: Instant,
    pub report_at: Instant,
    /// `None` until it is read, and after a failed read: an old value is not reported again.
    pub reading: Option<Reading>,
    pub write: Retry,
    /// This process knows the written value, or that it is unknown.
    pub seen: bool,
}

impl Progress {
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { collect_at: now, report_at: now, reading: None, write: Retry::at(now), seen: false }
    }

    /// The progress of a property that was planned differently before.
    fn adapted<P: PartialEq>(&self, old: &Property<P>, new: &Property<P>, now: Instant) -> Self {
        if old.point != new.point || old.kind != new.kind {
            return Self::new(now);
        }
        let mut progress = self.clone();
        progress.collect_at = progress.collect_at.min(now + new.collect);
        progress.report_at = progress.report_at.min(now + new.report);
        if old.desired != new.desired {
            progress.write = Retry::at(now);
        }
        progress
    }

    /// It was read, or its turn was lost. `pause`: at least until the next time.
    pub fn collected(&mut self, cycle: Duration, pause: Duration, now: Instant) {
        self.collect_at = next(self.collect_at, cycle.max(pause), now);
    }

    pub fn reported(&mut self, cycle: Duration, now: Instant) {
        self.report_at = next(self.report_at, cycle, now);
    }
}

/// Keeps the beat, unless one was missed.
fn next(at: Instant, cycle: Duration, now: Instant) -> Instant {
    let next = at + cycle;
    if next > now { next } else { now + cycle }
}

/// Progress of the properties of a new plan, in its order.
#[must_use]
pub fn adapt<P: PartialEq>(old: &Plan<P>, held: &[Progress], new: &Plan<P>, now: Instant) -> Vec<Progress> {
    let one = |property: &Property<P>| {
        let before = old.properties.iter().zip(held).find(|(old, _)| old.name == property.name);
        before.map_or_else(|| Progress::new(now), |(old, progress)| progress.adapted(old, property, now))
    };
    new.properties.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Desired, Id};
    use crate::value::{Kind, Value};

    const SECOND: Duration = Duration::from_secs(1);

    fn plan(point: u8, desired: &str) -> Plan<u8> {
        let desired = (!desired.is_empty()).then(|| Desired { text: desired.into(), value: Value::Flag(true) });
        let property = Property {
            name: "led".into(),
            kind: Kind::String,
            point,
            collect: SECOND,
            report: SECOND * 60,
            to_cloud: true,
            desired,
        };
        Plan { id: Id::default(), properties: vec![property], state: None }
    }

    #[test]
    fn a_beat_is_kept_and_missed_ones_are_not_made_up_for() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        progress.collected(SECOND, Duration::ZERO, start + SECOND / 10);
        assert_eq!(progress.collect_at, start + SECOND);
        progress.collected(SECOND, Duration::ZERO, start + SECOND * 10);
        assert_eq!(progress.collect_at, start + SECOND * 11);
        progress.collected(SECOND, SECOND * 30, start + SECOND * 11);
        assert_eq!(progress.collect_at, start + SECOND * 41);
    }

    #[test]
    fn changed_plan_continues_or_restarts() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        progress.reading = Some(Reading { text: "ON".into(), at: 1 });
        progress.write.again(start);
        progress.write.again(start);
        assert_eq!(progress.write.at, start + SECOND * 2);
        let held = [progress];
        let same = adapt(&plan(1, "ON"), &held, &plan(1, "ON"), start);
        assert!(same[0].reading.is_some() && same[0].write.at == start + SECOND * 2);
        let desired = adapt(&plan(1, "ON"), &held, &plan(1, "OFF"), start);
        assert!(desired[0].reading.is_some() && desired[0].write.at == start);
        let elsewhere = adapt(&plan(1, "ON"), &held, &plan(2, "ON"), start);
        assert!(elsewhere[0].reading.is_none());
    }
}
