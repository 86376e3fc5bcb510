//! Which process the daemon is, and ending it so that its supervisor starts it again. The launcher becomes the daemon, so it
//! knows before.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sampan_sys::files::{private_dir, replace};
use serde::{Deserialize, Serialize};

use crate::versions::Versions;

/// A daemon that does not end by itself in this time is killed. It stops in well under a second, but for a slow disk.
const GRACE: Duration = Duration::from_secs(20);

/// A process, identified by its pid and start time (proc(5), `stat`, field 22), because pids are reused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MainProcess {
    pid: i32,
    start_time: String,
}

fn file(versions: &Versions) -> PathBuf {
    versions.own_run_folder().join("main.json")
}

fn start_time(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ended = matches!(fields.first(), Some(&"Z" | &"X"));
    fields.get(19).filter(|_| !ended).map(|&time| time.to_owned())
}

impl MainProcess {
    /// Notes that this process is it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_own(versions: &Versions) -> io::Result<()> {
        let pid = Pid::this().as_raw();
        let own = Self { pid, start_time: start_time(pid).unwrap_or_default() };
        private_dir(&versions.own_run_folder())?;
        replace(&file(versions), &serde_json::to_vec(&own).map_err(io::Error::other)?, false)
    }

    /// Returns the running one, if the launcher has started it.
    #[must_use]
    pub fn find(versions: &Versions) -> Option<Self> {
        let noted: Self = serde_json::from_slice(&fs::read(file(versions)).ok()?).ok()?;
        noted.runs().then_some(noted)
    }

    #[must_use]
    pub fn runs(&self) -> bool {
        self.pid > 1 && start_time(self.pid).is_some_and(|time| time == self.start_time)
    }

    /// Ends it: by SIGTERM, then by SIGKILL. Containers continue. Returns when it is gone.
    pub fn end(&self) {
        self.signal(Signal::SIGTERM);
        let until = Instant::now() + GRACE;
        while self.runs() && Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        if self.runs() {
            // Gone in between is what is wanted.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_ended_and_another_one_with_its_number_is_not() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let main = MainProcess { pid, start_time: start_time(pid).unwrap() };
        let other = MainProcess { start_time: "1".into(), ..main.clone() };
        other.end();
        assert!(main.runs() && !other.runs());
        main.end();
        assert!(!child.wait().unwrap().success() && !main.runs());
    }

    #[test]
    fn launcher_is_found_by_its_note() {
        let temp = tempfile::tempdir().unwrap();
        let versions = Versions::new(temp.path(), Path::new("/nonexistent"));
        assert_eq!(MainProcess::find(&versions), None);
        MainProcess::note_own(&versions).unwrap();
        assert!(MainProcess::find(&versions).is_some_and(|found| found.pid == Pid::this().as_raw()));
        fs::write(file(&versions), r#"{"pid":1,"startTime":"x"}"#).unwrap();
        assert_eq!(MainProcess::find(&versions), None);
    }
}
