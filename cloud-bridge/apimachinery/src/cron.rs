//! Schedules as crontabs write them, read as the library reads them that Kubernetes uses (robfig/cron, `ParseStandard`),
//! and refused in its words.

mod duration;
#[cfg(test)]
mod tests;
pub mod zone;

use std::time::Duration;

/// When something is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// Times of a calendar.
    Calendar(Calendar),
    /// After as long, whenever it was last.
    Every(Duration),
}

/// Times of a calendar, as one bit for each number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calendar {
    pub minute: u64,
    pub hour: u64,
    pub day_of_month: u64,
    pub month: u64,
    pub day_of_week: u64,
    /// Whether the days of the month are not restricted: then only the days of the week count, and vice versa.
    /// Otherwise either is enough.
    pub any_day_of_month: bool,
    pub any_day_of_week: bool,
}

/// Range of a field's numbers, and their names.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// The field said any number.
const STAR: u64 = 1 << 63;

impl Schedule {
    /// Parses `*/5 * * * *`, `@daily`, `@every 1h30m`. A leading time zone is parsed and ignored: schedules of
    /// Kubernetes do not have one.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        let mut rest = text;
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            let Some((zone, schedule)) = text.split_once(' ') else {
                // The library panics, and clients see the text of that panic.
                return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
            };
            let zone = zone.split_once('=').map_or("", |(_, zone)| zone);
            if zone != "Local" {
                zone::load(zone).map_err(|why| format!("provided bad location {zone}: {why}"))?;
            }
            rest = schedule.trim();
        }
        if rest.starts_with('@') {
            return descriptor(rest);
        }
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let [minute, hour, day_of_month, month, day_of_week] = fields[..] else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        };
        calendar([minute, hour, day_of_month, month, day_of_week])
    }
}

fn calendar([minute, hour, day_of_month, month, day_of_week]: [&str; 5]) -> Result<Schedule, String> {
    let (minute, hour) = (field(minute, &MINUTES)?, field(hour, &HOURS)?);
    let (day_of_month, month) = (field(day_of_month, &DAYS)?, field(month, &MONTHS)?);
    let day_of_week = field(day_of_week, &WEEKDAYS)?;
    Ok(Schedule::Calendar(Calendar {
        minute: minute & !STAR,
        hour: hour & !STAR,
        day_of_month: day_of_month & !STAR,
        month: month & !STAR,
        day_of_week: day_of_week & !STAR,
        any_day_of_month: day_of_month & STAR != 0,
        any_day_of_week: day_of_week & STAR != 0,
    }))
}

fn descriptor(text: &str) -> Result<Schedule, String> {
    calendar(match text {
        "@yearly" | "@annually" => ["0", "0", "1", "1", "*"],
        "@monthly" => ["0", "0", "1", "*", "*"],
        "@weekly" => ["0", "0", "*", "*", "0"],
        "@daily" | "@midnight" => ["0", "0", "*", "*", "*"],
        "@hourly" => ["0", "*", "*", "*", "*"],
        _ => {
            let Some(wait) = text.strip_prefix("@every ") else {
                return Err(format!("unrecognized descriptor: {text}"));
            };
            let wait = duration::parse(wait).map_err(|why| format!("failed to parse duration {text}: {why}"))?;
            // Whole seconds, and one at least.
            return Ok(Schedule::Every(Duration::from_secs(wait.as_secs().max(1))));
        }
    })
}

/// Parses a list of ranges. Empty ones between commas are skipped.
fn field(text: &str, bounds: &Bounds) -> Result<u64, String> {
    text.split(',').filter(|part| !part.is_empty()).try_fold(0, |bits, part| Ok(bits | range(part, bounds)?))
}

/// `NUMBER`, `NUMBER-NUMBER`, `*`, each with a step or without: `*/5`.
fn range(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let (limits, step) = match text.split_once('/') {
        None => (text, None),
        Some((_, rest)) if rest.contains('/') => {
            // The part before the step is parsed first.
            first_and_last(text.split('/').next().unwrap_or_default(), text, bounds)?;
            return Err(format!("too many slashes: {text}"));
        }
        Some((limits, step)) => (limits, Some(step)),
    };
    let (start, mut end, any) = first_and_last(limits, text, bounds)?;
    let step = match step {
        None => 1,
        Some(step) => {
            // `N/step` continues to the end.
            if !limits.contains('-') {
                end = bounds.max;
            }
            integer(step)?
        }
    };
    if start < bounds.min {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", bounds.min));
    }
    if end > bounds.max {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", bounds.max));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    let Ok(skipped) = usize::try_from(step) else { return Ok(1 << start) };
    if skipped == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let bits = (start..=end).step_by(skipped).fold(0, |bits, number| bits | 1 << number);
    Ok(if any && step == 1 { bits | STAR } else { bits })
}

fn first_and_last(limits: &str, text: &str, bounds: &Bounds) -> Result<(u64, u64, bool), String> {
    let mut parts = limits.split('-');
    let (first, last) = (parts.next().unwrap_or_default(), parts.next());
    if first == "*" || first == "?" {
        return Ok((bounds.min, bounds.max, true));
    }
    let start = number(first, bounds)?;
    let end = last.map_or(Ok(start), |last| if parts.next().is_some() { Ok(start) } else { number(last, bounds) })?;
    if limits.split('-').count() > 2 {
        return Err(format!("too many hyphens: {text}"));
    }
    Ok((start, end, false))
}

fn number(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let name = text.to_lowercase();
    match bounds.names.iter().zip(bounds.min..).find(|(known, _)| **known == name) {
        Some((_, number)) => Ok(number),
        None => integer(text),
    }
}

fn integer(text: &str) -> Result<u64, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let number: i64 = text.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            NegOverflow | PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}")
    })?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}
