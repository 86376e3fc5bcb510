//! Orders of fleet jobs, done on this node by a helper process of the daemon: an order comes in, and again and again how far it is
//! goes out. What was done is kept in a file, so that a helper, a daemon or a machine that ends in between does nothing twice.
//!
//! | file | owns |
//! |---|---|
//! | `kept` | what is remembered of an order |
//! | `progress` | telling how far it is |
//! | `check` | whether the node has what the work takes |
//! | `upgrade`, `prepull`, `configure` | the work |
//! | `fields` | changing values of a configuration (pure) |

mod check;
mod configure;
mod fields;
pub(crate) mod kept;
mod prepull;
mod progress;
mod upgrade;

use std::time::{Duration, Instant};

use edge_protocol::message::{Job as Named, Order, OrderPhase, Work};
use edge_runtime::config::{Config, ConfigFile, Overrides, UpgradeConfig};
use edge_runtime::paths::Paths;

use kept::Kept;
use progress::Progress;

/// Interval of the check for a confirmation.
const PAUSE: Duration = Duration::from_secs(2);

/// A year, in seconds: as the bridge has it for a job.
const LONGEST: u64 = 366 * 86_400;
/// Interval of signs of life without other messages: the daemon kills a silent helper.
const WORD: Duration = Duration::from_secs(60);

/// One order at work.
struct Job<'a> {
    order: &'a Order,
    paths: &'a Paths,
    progress: Progress<'a>,
    until: Instant,
}

/// Does what is left of it. `tell` hears each state as it is kept.
pub(crate) fn run(order: &Order, paths: &Paths, tell: &mut dyn FnMut(&Kept)) {
    let kept = Kept::load(paths, &order.job);
    let ended = kept.status.phase.is_final();
    let mut job = Job {
        order,
        paths,
        progress: Progress::new(kept, paths, tell),
        until: Instant::now() + patience(order.timeout_seconds),
    };
    // The bridge asks because it does not know.
    job.progress.tell();
    if ended {
        return;
    }
    let done = match &order.work {
        _ if has_control_character(order) => Err("the job's name, uid or images hold a control character".to_owned()),
        Work::Upgrade { .. } => upgrade::work(&mut job),
        Work::PrePull { images, secrets, retry_times } => prepull::work(&mut job, images, secrets, *retry_times),
        Work::Configure { fields } => configure::work(&mut job, fields),
        Work::Unknown(_) => Err("this version of edge-runtime does not know such work".to_owned()),
    };
    match done {
        Ok(End::Done) => job.progress.end(OrderPhase::Successful, ""),
        Ok(End::Later) => {}
        Err(why) => job.progress.end(OrderPhase::Failure, &why),
    }
}

/// Whether a string that ends up in a file, a command line or a log could begin a line of its own there. Logins and new
/// values of a configuration are documents, and read as such.
fn has_control_character(order: &Order) -> bool {
    let Named { kind, name, uid } = &order.job;
    let of_work: Vec<&String> = match &order.work {
        Work::Upgrade { version, image, digests, signatures } => {
            let maps = digests.iter().chain(signatures).flat_map(|(key, value)| [key, value]);
            [version, image].into_iter().chain(maps).collect()
        }
        Work::PrePull { images, .. } => images.iter().collect(),
        Work::Configure { fields } => fields.keys().collect(),
        Work::Unknown(_) => Vec::new(),
    };
    [kind, name, uid].into_iter().chain(of_work).any(|text| text.chars().any(char::is_control))
}

/// A bridge that has lost its mind says any number, and a sum beyond all clocks would be the end of this process.
fn patience(seconds: u64) -> Duration {
    Duration::from_secs(seconds.clamp(1, LONGEST))
}

/// How the work of this process has ended.
enum End {
    Done,
    /// The daemon ends, and with the next one it goes on.
    Later,
}

impl Job<'_> {
    /// # Errors
    /// An item of the order's checks says no.
    fn check(&mut self, bytes: u64) -> Result<(), String> {
        let done = check::check(&self.order.check_items, self.paths, bytes);
        self.progress.step("Check", done)
    }

    /// Returns when a user has confirmed, or at once if no confirmation is required.
    fn wait_for_confirmation(&mut self) {
        if !self.order.require_confirmation {
            return;
        }
        let mut told = Instant::now();
        while !self.order.confirmed && !self.progress.kept().is_confirmed(self.paths) {
            self.progress.wait_in("WaitingConfirmation");
            if told.elapsed() >= WORD {
                self.progress.tell();
                told = Instant::now();
            }
            std::thread::sleep(PAUSE);
        }
        // Succeeds: what could fail was waited for.
        let _ = self.progress.step("WaitingConfirmation", Ok(()));
    }

    /// How long there is still for the work itself.
    fn left(&self) -> Result<Duration, String> {
        let left = self.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        left.ok_or_else(|| format!("not done within {} s (timeoutSeconds)", self.order.timeout_seconds))
    }

    /// Parses the configuration like the daemon.
    fn config(&self) -> Result<Config, String> {
        let overrides = Overrides { joined: Some("node".to_owned()), ..Overrides::default() };
        let read = Config::load_lenient(&self.paths.config_file(), self.paths.root(), &overrides);
        read.map(|(config, _)| config).map_err(|error| error.to_string())
    }

    fn upgrade_config(&self) -> Result<UpgradeConfig, String> {
        let read = ConfigFile::read_lenient(&self.paths.config_file());
        read.map(|(file, _)| file.upgrade).map_err(|error| error.to_string())
    }

    /// Comes back when images may be pulled (`pull.window`).
    fn wait_for_window(&mut self) -> Result<(), String> {
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        loop {
            let Some(window) = self.config()?.pull.hours else { return Ok(()) };
            if window.open_for(i64::try_from(now()).unwrap_or(i64::MAX)).is_some() {
                return Ok(());
            }
            // With the minute, for one that says nothing new for as long as the job's work may take is given up.
            let minute = jiff::Timestamp::now().strftime("%H:%M").to_string();
            self.progress.wait_because(&format!("waits for pull.window {}, UTC, where it is {minute}", window.text));
            std::thread::sleep(Duration::from_secs(60));
            // Waiting is not the work.
            self.until += Duration::from_secs(60);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(name: &str, work: serde_json::Value) -> Order {
        let order = serde_json::json!({"job": {"kind": "ConfigUpdateJob", "name": name, "uid": "u"},
            "timeoutSeconds": 10, "work": work});
        serde_json::from_value(order).unwrap()
    }

    #[test]
    fn job_with_a_line_break_in_its_name_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        std::fs::create_dir_all(paths.config_file().parent().unwrap()).unwrap();
        let fields = serde_json::json!({"configure": {"fields": {"logs.max-files": "3"}}});
        let mut last = None;
        run(&order("x\nregistry: {}\n#", fields), &paths, &mut |kept| last = Some(kept.status.clone()));
        let last = last.unwrap();
        assert_eq!(last.phase, OrderPhase::Failure);
        assert!(last.reason.contains("control character"), "{}", last.reason);
        for work in [
            serde_json::json!({"prePull": {"images": ["a", "b\u{7}"]}}),
            serde_json::json!({"configure": {"fields": {"a\nb": "1"}}}),
            serde_json::json!({"upgrade": {"version": "1", "image": "i", "digests": {"amd64": "d\n"}}}),
        ] {
            assert!(has_control_character(&order("j", work)));
        }
        let document = serde_json::json!({"prePull": {"images": ["a"], "secrets": ["{\n}"]}});
        assert!(!has_control_character(&order("j", document)), "a login is a document");
    }

    #[test]
    fn no_number_of_a_bridge_is_beyond_the_clock() {
        for (seconds, wanted) in [(0, 1), (300, 300), (u64::MAX, LONGEST)] {
            assert_eq!(patience(seconds), Duration::from_secs(wanted));
            assert!(Instant::now().checked_add(patience(seconds)).is_some());
        }
    }
}
