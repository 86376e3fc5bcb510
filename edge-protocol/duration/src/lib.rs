//! A length of time as people type it, in flags of both programs and in annotations.

use std::str::FromStr;
use std::time::Duration;

/// A duration as kubectl takes it, `90s`, `1h30m`, and with days, `2d`. A number alone means seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typed(pub Duration);

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no duration: want numbers with s, m, h or d, as 90s or 1h30m")]
pub struct NoDuration(String);

impl FromStr for Typed {
    type Err = NoDuration;

    fn from_str(text: &str) -> Result<Self, NoDuration> {
        let none = || NoDuration(text.to_owned());
        let (mut rest, mut seconds) = (text, 0_u64);
        if rest.is_empty() {
            return Err(none());
        }
        while !rest.is_empty() {
            let (number, unit) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
            let number: u64 = number.parse().map_err(|_| none())?;
            let factor = match unit.chars().next() {
                // Alone only.
                None if rest == text => 1,
                Some('s') => 1,
                Some('m') => 60,
                Some('h') => 3600,
                Some('d') => 86_400,
                _ => return Err(none()),
            };
            seconds = seconds.saturating_add(number.saturating_mul(factor));
            rest = unit.get(1..).unwrap_or_default();
        }
        Ok(Self(Duration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_typed_as_for_kubectl() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("0s", 0)] {
            assert_eq!(text.parse::<Typed>().unwrap().0.as_secs(), seconds, "{text}");
        }
        let far = "99999999999999999d".parse::<Typed>().unwrap();
        assert_eq!(far.0.as_secs(), u64::MAX);
        for wrong in ["", "h", "1w", "-5s", "1h30", "5 m", "1.5h", "1\u{e9}"] {
            wrong.parse::<Typed>().unwrap_err();
        }
    }
}
