//! Durations as Go writes them: `1h30m`, `1.5s`.

use std::time::Duration;

/// Nanoseconds of each unit.
const UNITS: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// Go counts nanoseconds in 63 bits.
const MAX: u128 = i64::MAX as u128;

/// Parses a duration. A negative one counts as zero.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (whole, after) = rest.split_at(digits(rest));
        let (part, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && part.is_empty() {
            return Err(invalid());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let (_, size) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| format!("time: unknown unit {unit:?} in duration {text:?}"))?;
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        total = whole.checked_mul(*size).and_then(|more| total.checked_add(more)).ok_or_else(invalid)?;
        let mut place = *size;
        for digit in part.bytes() {
            place /= 10;
            total += u128::from(digit - b'0') * place;
        }
        if total > MAX {
            return Err(invalid());
        }
        rest = after;
    }
    let total = if negative { 0 } else { u64::try_from(total).map_err(|_| invalid())? };
    Ok(Duration::from_nanos(total))
}
