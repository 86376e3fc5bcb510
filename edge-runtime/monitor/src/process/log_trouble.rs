//! Logs that cannot be written: noticed in the monitor, told to those who listen when it changes. The containers go on.

use std::time::{Duration, Instant};

use super::Monitor;
use crate::protocol::Event;

/// A disk at the edge of being full comes and goes with every write.
const PAUSE: Duration = Duration::from_secs(2);

impl Monitor {
    /// Tells what has changed. When to look again, if it was told too recently.
    pub(crate) fn look_at_logs(&mut self) -> Option<Duration> {
        let mut all = self.containers.values().filter_map(|c| Some((c, c.output.as_ref()?.trouble()?)));
        let reason = all.next().map(|(c, why)| (c.spec.log_path.display(), why)).map(|(path, why)| match all.count() {
            0 => format!("{path}: {why}"),
            others => format!("{path} and {others} others: {why}"),
        });
        if reason.is_some() == self.log_trouble.is_some() {
            return None;
        }
        let passed = self.log_trouble_at.elapsed();
        if passed < PAUSE {
            return Some(PAUSE.saturating_sub(passed));
        }
        self.log_trouble_at = Instant::now();
        self.log_trouble.clone_from(&reason);
        self.clients.tell_all(&Event::LogTrouble { reason }, &self.epoll);
        None
    }

    pub(crate) fn tell_log_trouble_to(&mut self, client: u64) {
        if let Some(reason) = self.log_trouble.clone() {
            self.clients.send(client, &Event::LogTrouble { reason: Some(reason) }, &self.epoll);
        }
    }
}
