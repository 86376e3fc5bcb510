//! One order at work: its checks, and what it waits for.

use std::time::{Duration, Instant};

use edge_protocol::message::{Order, WAITING_CONFIRMATION};
use edge_runtime::config::{Config, ConfigFile, Overrides, UpgradeConfig};
use edge_runtime::paths::Paths;

use super::check;
use super::progress::Progress;

const CHECK: &str = "Check";

/// One order at work.
pub(super) struct Job<'a> {
    pub(super) order: &'a Order,
    pub(super) paths: &'a Paths,
    pub(super) progress: Progress<'a>,
    pub(super) until: Instant,
}

/// How the work of this process has ended.
pub(super) enum End {
    Done,
    /// Another process continues it: with the next daemon, after a user's confirmation, or in a minute.
    Later,
}

impl Job<'_> {
    /// Runs the checks once. An order that has passed and then waits is not checked again, so that others cannot delay
    /// it.
    ///
    /// # Errors
    /// A check of the order has failed.
    pub(super) fn check(&mut self, bytes: u64) -> Result<(), String> {
        if self.progress.has_done(CHECK) {
            return Ok(());
        }
        let done = check::check(&self.order.check_items, self.paths, bytes);
        self.progress.step(CHECK, done)
    }

    /// Whether a user has confirmed, or need not. If not, the daemon goes on with other orders, and with this one once it is
    /// confirmed.
    pub(super) fn is_confirmed(&mut self) -> bool {
        if !self.order.require_confirmation || self.progress.has_done(WAITING_CONFIRMATION) {
            return true;
        }
        if !self.order.confirmed && !self.progress.kept().is_confirmed(self.paths) {
            self.progress.wait_in(WAITING_CONFIRMATION);
            return false;
        }
        // Succeeds: what could fail was waited for.
        self.progress.step(WAITING_CONFIRMATION, Ok(())).is_ok()
    }

    /// How long there is still for the work itself.
    pub(super) fn left(&self) -> Result<Duration, String> {
        let left = self.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        left.ok_or_else(|| format!("not done within {} s (timeoutSeconds)", self.order.timeout_seconds))
    }

    /// Parses the configuration like the daemon.
    fn config(&self) -> Result<Config, String> {
        let overrides = Overrides { joined: Some("node".to_owned()), ..Overrides::default() };
        let read = Config::load_lenient(&self.paths.config_file(), self.paths.root(), &overrides);
        read.map(|(config, _)| config).map_err(|error| error.to_string())
    }

    pub(super) fn upgrade_config(&self) -> Result<UpgradeConfig, String> {
        let read = ConfigFile::read_lenient(&self.paths.config_file());
        read.map(|(file, _)| file.upgrade).map_err(|error| error.to_string())
    }

    /// Whether images may be pulled now (`pull.window`). If not, the daemon goes on with other orders, and asks again in a minute.
    pub(super) fn is_window_open(&mut self) -> Result<bool, String> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let hours = self.config()?.pull.hours;
        let shut = hours.filter(|window| window.open_for(i64::try_from(now).unwrap_or(i64::MAX)).is_none());
        let why = shut.as_ref().map(|window| {
            // Includes the minute, because the bridge gives up an order whose text does not change within the job's
            // timeout.
            let minute = jiff::Timestamp::now().strftime("%H:%M");
            format!("waits for pull.window {}, UTC, where it is {minute}", window.text)
        });
        self.progress.wait_because(&why.unwrap_or_default());
        Ok(shut.is_none())
    }
}
