//! The last time of a schedule, and the time of the next check (K8s pkg/controller/cronjob/utils.go).

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::context::Context;
use super::next::Times;
use crate::workloads::annotations::EDITED;

/// It is looked at a little after the time, so as not to be before it.
const PADDING: Duration = Duration::from_millis(100);

/// How many times of the schedule have passed without a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missed {
    None,
    Few,
    /// More than a hundred.
    Many,
}

/// The last time of a schedule, counted from the last Job or the beginning.
#[derive(Debug)]
pub(super) struct Recent {
    from: Timestamp,
    /// `None` if it is yet to come.
    pub(super) time: Option<Timestamp>,
    pub(super) missed: Missed,
}

/// Time of the last change of the schedule, according to the object. A time in the future comes from another clock.
pub(super) fn noted_edit(context: &Context<'_>) -> Option<Timestamp> {
    let said = context.cron_job.metadata.annotations.as_ref()?.get(EDITED)?;
    said.parse().ok().filter(|edited| *edited <= context.now)
}

/// From when times count: the last Job's or the beginning, and no earlier than the schedule was changed. Kubernetes counts a
/// changed schedule from the last Job of the former one, and so runs times of the past at once.
pub(super) fn beginning(context: &Context<'_>, edited: Option<Timestamp>) -> Option<Timestamp> {
    let created = context.cron_job.metadata.creation_timestamp.as_ref().map(|time| time.0);
    context.last().or(created).max(edited.filter(|edited| *edited <= context.now))
}

/// The most recent scheduled time. `deadline`: skips times that are past the starting deadline.
pub(super) fn most_recent(context: &Context<'_>, schedule: &Times, deadline: bool) -> Result<Recent, &'static str> {
    const INVALID: &str = "time difference between two schedules is less than 1 second";
    let now = context.now;
    let edited = context.cron_job.edited().max(noted_edit(context));
    let mut from = beginning(context, edited).unwrap_or(now);
    if let Some(seconds) = context.spec.starting_deadline_seconds.filter(|_| deadline) {
        from = now.checked_sub(SignedDuration::from_secs(seconds)).map_or(from, |earliest| earliest.max(from));
    }
    let first = schedule.next(from).ok_or(INVALID)?;
    if now < first {
        return Ok(Recent { from, time: None, missed: Missed::None });
    }
    let second = schedule.next(first).ok_or(INVALID)?;
    if now < second {
        return Ok(Recent { from, time: Some(first), missed: Missed::None });
    }
    let between = second.duration_since(first).as_secs();
    if between < 1 {
        return Err(INVALID);
    }
    let count = now.duration_since(first).as_secs() / between + 1;
    // Two intervals before the last: schedules need not be regular.
    let near = first.checked_add(SignedDuration::from_secs((count - 2).saturating_mul(between))).unwrap_or(first);
    let times = std::iter::successors(schedule.next(near), |time| schedule.next(*time));
    let time = times.take_while(|time| *time <= now).last();
    Ok(Recent { from, time, missed: if count > 100 { Missed::Many } else { Missed::Few } })
}

/// How long it is until the next time.
pub(super) fn wait(context: &Context<'_>, schedule: &Times) -> Option<Duration> {
    let now = context.now;
    let from = match most_recent(context, schedule, false) {
        Ok(Recent { time: Some(time), .. }) => time,
        Ok(Recent { missed: Missed::None, from, .. }) => from,
        Ok(_) | Err(_) => now,
    };
    let next = schedule.next(from)?;
    Some(Duration::try_from(next.duration_since(now)).unwrap_or_default() + PADDING)
}

/// A time by the clock of a zone.
pub(super) fn rfc3339(time: Timestamp, zone: &TimeZone) -> String {
    let zoned = time.to_zoned(zone.clone());
    if zoned.offset().is_zero() { time.to_string() } else { zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string() }
}
