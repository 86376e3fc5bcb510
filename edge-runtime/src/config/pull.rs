//! The `pull` section: how and when images are fetched. Pure.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{Wrong, wrong};
use super::images::normalized;

/// Pulls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct PullConfig {
    /// Maximum rate of a download; there is only one at a time.
    pub bytes_per_second: Option<u64>,
    /// The window as typed.
    window: Option<String>,
    /// Names of images to have before a pod asks for them, normalized once they are checked; never collected.
    pub images: Vec<String>,
    /// Docker config JSON for all registries, behind pull secrets and a registry's own file.
    pub auth_file: Option<PathBuf>,
    /// `window`, once it is checked.
    #[serde(skip)]
    pub hours: Option<Window>,
}

impl PullConfig {
    pub(super) fn check(self) -> Result<Self, Wrong> {
        if self.bytes_per_second.is_some_and(|rate| rate < 1024) {
            return Err(wrong("pull.bytes-per-second", "less than 1024 would time out at most registries"));
        }
        let hours = self.window.as_deref().map(Window::parse).transpose().map_err(|why| wrong("pull.window", why))?;
        Ok(Self { hours, images: normalized("pull.images", &self.images)?, ..self })
    }
}

/// A time of day, in UTC because a board's time zone is rarely set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Seconds since midnight.
    from: u32,
    to: u32,
    pub text: String,
}

const DAY: u32 = 24 * 3600;

impl Window {
    /// `02:00-05:00`; over midnight when the end is before the beginning.
    ///
    /// # Errors
    /// The text has another form, or the window is empty.
    pub fn parse(text: &str) -> Result<Self, String> {
        let time = |part: &str| {
            let (hours, minutes) = part.split_once(':')?;
            let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
            (hours < 24 && minutes < 60).then_some(hours * 3600 + minutes * 60)
        };
        let times = text.split_once('-').and_then(|(from, to)| Some((time(from)?, time(to)?)));
        match times {
            Some((from, to)) if from != to => Ok(Self { from, to, text: text.to_owned() }),
            _ => Err(format!("'{text}' is no time of day like 02:00-05:00 (UTC)")),
        }
    }

    /// How long it stays open from this second of wall time on; `None` while it is closed.
    pub fn open_for(&self, unix_seconds: i64) -> Option<Duration> {
        let now = u32::try_from(unix_seconds.rem_euclid(i64::from(DAY))).unwrap_or(0);
        let length = (self.to + DAY - self.from) % DAY;
        let since = (now + DAY - self.from) % DAY;
        (since < length).then(|| Duration::from_secs(u64::from(length - since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_opens_and_closes_over_midnight_too() {
        let night = Window::parse("22:30-05:00").unwrap();
        let at = |hour: i64, minute: i64| 86_400 * 20_000 + hour * 3600 + minute * 60;
        let open = |hour, minute| night.open_for(at(hour, minute)).map(|left| left.as_secs() / 60);
        assert_eq!(
            [open(22, 29), open(22, 30), open(0, 0), open(4, 59), open(5, 0)],
            [None, Some(390), Some(300), Some(1), None]
        );
        assert!(Window::parse("02:00-05:00").unwrap().open_for(-1).is_none());
        for wrong in ["", "2-5", "02:00", "24:00-01:00", "02:60-03:00", "02:00-02:00"] {
            assert!(Window::parse(wrong).is_err(), "{wrong}");
        }
    }
}
