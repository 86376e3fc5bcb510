//! Whether the daemon is up: its answer on its socket, and the state of its link in a file. Starts nothing.

use std::fs;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use edge_runtime::link::status::{self, LinkStatus};
use edge_runtime::paths::Paths;

use crate::doctor::ask_daemon;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(300);
/// Between two notes of what is missing.
const NOTE: Duration = Duration::from_secs(10);

/// Waits until the daemon is ready and its link is up. Tells `note` the missing condition every ten seconds.
///
/// # Errors
/// The missing condition when the time was up.
pub(crate) fn wait(paths: &Paths, patience: Duration, mut note: impl FnMut(&str)) -> Result<(), String> {
    let (began, since) = (Instant::now(), SystemTime::now());
    let mut next = NOTE;
    loop {
        match look(paths, since) {
            Ok(()) => return Ok(()),
            Err(why) if began.elapsed() >= patience => return Err(why),
            Err(why) if began.elapsed() >= next => {
                next += NOTE;
                note(&why);
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn look(paths: &Paths, since: SystemTime) -> Result<(), String> {
    let socket = paths.health();
    match ask_daemon(&socket, "/readyz") {
        Ok((true, _)) => {}
        Ok((false, said)) => return Err(said.trim().replace('\n', "; ")),
        // A daemon of an older version does not have one: only its link tells.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("{}: {error}", socket.display())),
    }
    // A file of an earlier daemon says nothing of this one.
    let file = status::file(paths);
    let fresh = fs::metadata(&file).and_then(|about| about.modified()).is_ok_and(|at| at >= since);
    let link = LinkStatus::read(&file).unwrap_or_default();
    match (fresh && link.connected, link.why.as_str()) {
        (true, _) => Ok(()),
        (false, "") => Err("it has no link to a bridge yet".into()),
        (false, why) => Err(format!("it has no link to a bridge: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_a_link_of_this_daemon_counts() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        let since = SystemTime::now() - Duration::from_secs(1);
        let write = |text: &str| fs::write(status::file(&paths), text).unwrap();
        assert!(look(&paths, since).unwrap_err().contains("no link"));
        fs::create_dir_all(status::file(&paths).parent().unwrap_or(Path::new("/"))).unwrap();
        write(r#"{"connected": false, "why": "no route to host"}"#);
        assert!(look(&paths, since).unwrap_err().ends_with("no route to host"));
        write(r#"{"connected": true}"#);
        look(&paths, since).unwrap();
        look(&paths, SystemTime::now() + Duration::from_secs(60)).unwrap_err();
    }
}
