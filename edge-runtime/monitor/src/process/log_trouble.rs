//! Logs that cannot be written: detected in the monitor, and reported to clients when that changes. Containers
//! continue.

use std::time::{Duration, Instant};

use super::Monitor;
use crate::protocol::Event;

/// Minimum time between two reports: a nearly full disk changes its state with every write.
const PAUSE: Duration = Duration::from_secs(2);

impl Monitor {
    /// Reports a change. Returns when to look again, if the last report was too recent.
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
