//! The next time of a schedule, by the clock of its zone (K8s vendor/github.com/robfig/cron/v3/spec.go `Next`): a time
//! that a clock change skips is skipped, one that occurs twice is returned twice.

use apimachinery::cron::{Calendar, Schedule};
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, Zoned};

/// A time that does not come within this number of years never comes: 31 February.
const YEARS: i16 = 5;

/// A schedule in its zone.
pub(super) struct Times {
    pub(super) schedule: Schedule,
    pub(super) zone: TimeZone,
}

impl Times {
    /// The first time after `after`; `None` without one within some years.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let whole = Timestamp::from_second(after.as_second()).ok()?;
        match &self.schedule {
            Schedule::Calendar(calendar) => {
                next(calendar, &self.zone, whole.checked_add(SignedDuration::from_secs(1)).ok()?)
            }
            Schedule::Every(delay) => whole.checked_add(*delay).ok(),
        }
    }
}

/// The first time that is not before `from`.
fn next(calendar: &Calendar, zone: &TimeZone, from: Timestamp) -> Option<Timestamp> {
    let mut time = from.to_zoned(zone.clone());
    let last = time.year().checked_add(YEARS)?;
    while time.year() <= last {
        time = if !has(calendar.month, time.month()) {
            start_of(time.date().first_of_month().checked_add(Span::new().months(1)).ok()?, zone)?
        } else if !has_day(calendar, time.date()) {
            start_of(time.date().tomorrow().ok()?, zone)?
        } else if !has(calendar.hour, time.hour()) {
            later(&time, 3600 - i64::from(time.minute()) * 60 - i64::from(time.second()))?
        } else if !has(calendar.minute, time.minute()) || time.second() != 0 {
            later(&time, 60 - i64::from(time.second()))?
        } else {
            return Some(time.timestamp());
        };
    }
    None
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).ok().and_then(|number| bits.checked_shr(number)).is_some_and(|bits| bits & 1 == 1)
}

/// Whether the day matches: if both kinds of days are restricted, one match is enough.
fn has_day(calendar: &Calendar, date: Date) -> bool {
    let of_month = has(calendar.day_of_month, date.day());
    let of_week = has(calendar.day_of_week, date.weekday().to_sunday_zero_offset());
    let either = !calendar.any_day_of_month && !calendar.any_day_of_week;
    if either { of_month || of_week } else { of_month && of_week }
}

/// The first moment of a day; not each day has a midnight.
fn start_of(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.to_datetime(Time::midnight()).to_zoned(zone.clone()).ok()
}

fn later(time: &Zoned, seconds: i64) -> Option<Zoned> {
    time.checked_add(SignedDuration::from_secs(seconds)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(schedule: &str, zone: TimeZone, from: &str, count: usize) -> Vec<String> {
        let times = Times { schedule: Schedule::parse(schedule).unwrap(), zone };
        let all = std::iter::successors(Some(from.parse().unwrap()), |after| times.next(*after));
        all.skip(1).take(count).map(|time: Timestamp| time.to_string()).collect()
    }

    #[test]
    fn schedules_say_when() {
        for (schedule, from, wanted) in [
            ("*/15 * * * *", "2024-05-05T10:00:01Z", ["2024-05-05T10:15:00Z", "2024-05-05T10:30:00Z"]),
            ("30 6-16/4 * * mon-FRI", "2024-05-04T06:30:00Z", ["2024-05-06T06:30:00Z", "2024-05-06T10:30:00Z"]),
            ("0 0 29 2 *", "2024-03-01T00:00:00Z", ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
            // A day of the month or of the week, where neither is a star.
            ("0 0 13 * 5", "2024-09-05T00:00:00Z", ["2024-09-06T00:00:00Z", "2024-09-13T00:00:00Z"]),
            ("0 0 13 * ?", "2024-09-05T00:00:00Z", ["2024-09-13T00:00:00Z", "2024-10-13T00:00:00Z"]),
            ("0 0 */10 * 5", "2024-09-01T00:00:00Z", ["2024-09-06T00:00:00Z", "2024-09-11T00:00:00Z"]),
            ("5/20 12 1 jan,Jul *", "2024-01-02T00:00:00Z", ["2024-07-01T12:05:00Z", "2024-07-01T12:25:00Z"]),
            ("@yearly", "2024-05-05T10:00:00Z", ["2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]),
            ("@monthly", "2024-05-05T10:00:00Z", ["2024-06-01T00:00:00Z", "2024-07-01T00:00:00Z"]),
            ("@weekly", "2024-05-05T10:00:00Z", ["2024-05-12T00:00:00Z", "2024-05-19T00:00:00Z"]),
            ("@midnight", "2024-05-05T10:00:00Z", ["2024-05-06T00:00:00Z", "2024-05-07T00:00:00Z"]),
            ("@hourly", "2024-05-05T10:00:00Z", ["2024-05-05T11:00:00Z", "2024-05-05T12:00:00Z"]),
            ("@every 1h30m", "2024-05-05T10:00:00.5Z", ["2024-05-05T11:30:00Z", "2024-05-05T13:00:00Z"]),
        ] {
            assert_eq!(times(schedule, TimeZone::UTC, from, 2), wanted, "{schedule}");
        }
        assert_eq!(times("0 0 31 2 *", TimeZone::UTC, "2024-05-05T10:00:00Z", 1), [""; 0]);
    }

    #[test]
    fn zones_have_their_clock_changes() {
        const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
        const NEW_YORK: &str = "EST5EDT,M3.2.0,M11.1.0";
        const KATHMANDU: &str = "<+0545>-5:45";
        for (schedule, zone, from, wanted) in [
            ("0 9 * * *", BERLIN, "2024-03-30T09:00:00Z", ["2024-03-31T07:00:00Z", "2024-04-01T07:00:00Z"]),
            // 02:30 is left out in spring, and 01:30 there twice in autumn.
            ("30 2 * * *", NEW_YORK, "2024-03-09T08:00:00Z", ["2024-03-11T06:30:00Z", "2024-03-12T06:30:00Z"]),
            ("30 1 * * *", NEW_YORK, "2024-11-03T04:00:00Z", ["2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z"]),
            ("15 * * * *", KATHMANDU, "2024-05-05T10:00:00Z", ["2024-05-05T10:30:00Z", "2024-05-05T11:30:00Z"]),
        ] {
            assert_eq!(times(schedule, TimeZone::posix(zone).unwrap(), from, 2), wanted, "{schedule} {zone}");
        }
    }
}
