//! Observes the daemon from outside, whatever its version: its answer at the health socket, the link's file, and the
//! pods as read by a proven version. Does not judge.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::judge::Look;
use crate::versions::{ADMIN, Trial, Versions};

/// Timeout for an answer of the daemon.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout for the program that reads the pods: the store may be busy.
const PODS: Duration = Duration::from_secs(20);
/// Maximum size of an answer, in bytes.
const LONGEST: u64 = 64 << 10;

/// Makes one observation. May take as long as the timeout above.
#[must_use]
pub fn look(versions: &Versions, trial: &Trial) -> Look {
    let run = versions.run_folder();
    // The old version first, because the new one may be broken. But only the new one may be able to read a newer
    // format.
    let old = versions.programs(trial.from.as_deref());
    let new = versions.programs(versions.read().current.as_deref());
    let pods = [old, new].iter().find_map(|programs| unready_pods(&programs.join(ADMIN), versions.root()));
    Look { unready: unready(&run.join("health.sock")), unlinked: unlinked(&run.join("link.json")), unready_pods: pods }
}

/// Why the daemon is not ready.
#[must_use]
pub fn unready(socket: &Path) -> Option<String> {
    match ask(socket) {
        Ok(answer) if answer.lines().next().is_some_and(|line| line.split(' ').nth(1) == Some("200")) => None,
        Ok(answer) => {
            let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().trim();
            Some(body.chars().take(200).filter(|c| !c.is_control()).collect())
        }
        Err(error) => Some(format!("{}: {error}", socket.display())),
    }
}

fn ask(socket: &Path) -> std::io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut stream = sampan_sys::socket::connect(socket)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(std::io::ErrorKind::TimedOut)?))?;
        match stream.read(&mut piece)? {
            0 => break,
            length => answer.extend(&piece[..length]),
        }
        if answer.len() as u64 > LONGEST {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The part of the link's file that has stayed the same in all versions.
#[derive(Deserialize)]
#[serde(default)]
struct Link {
    connected: bool,
    why: String,
}

impl Default for Link {
    fn default() -> Self {
        Self { connected: false, why: "nothing is known of the link".to_owned() }
    }
}

/// Why the link is down.
#[must_use]
pub fn unlinked(file: &Path) -> Option<String> {
    let link: Link = std::fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    (!link.connected).then_some(link.why)
}

/// A pod, as `edge-admin pods` prints it.
#[derive(Deserialize)]
struct Pod {
    uid: String,
    ready: bool,
}

/// Uids of the pods that are not ready.
fn unready_pods(program: &Path, root: &Path) -> Option<BTreeSet<String>> {
    let mut child = Command::new(program)
        .args(["pods", "--root"])
        .arg(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // Read while it runs: a pipe holds 64 KiB.
    let mut out = child.stdout.take()?;
    let text = thread::spawn(move || {
        let mut text = Vec::new();
        out.by_ref().take(LONGEST * 16).read_to_end(&mut text).map(|_| text)
    });
    if !ends_well(&mut child) {
        return None;
    }
    let pods: Vec<Pod> = serde_json::from_slice(&text.join().ok()?.ok()?).ok()?;
    Some(pods.into_iter().filter(|pod| !pod.ready).map(|pod| pod.uid).collect())
}

fn ends_well(child: &mut Child) -> bool {
    let until = Instant::now() + PODS;
    while Instant::now() < until {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => thread::sleep(Duration::from_millis(50)),
            Err(_) => return false,
        }
    }
    // The caller need not handle a program that does not end.
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn served(answer: &'static [u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("health.sock");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(answer);
        });
        (temp, path)
    }

    #[test]
    fn readiness_is_the_answer_of_the_daemon() {
        let (_temp, path) = served(b"HTTP/1.1 200 OK\r\n\r\nok");
        assert_eq!(unready(&path), None);
        let (_temp, path) = served(b"HTTP/1.1 503 Service Unavailable\r\n\r\nstore: full\x1b[2J\n");
        assert_eq!(unready(&path).as_deref(), Some("store: full[2J"));
        let (_temp, path) = served(b"garbage");
        assert!(unready(&path).is_some());
        assert!(unready(Path::new("/nonexistent")).is_some_and(|why| why.contains("/nonexistent")));
    }

    #[test]
    fn link_state_is_read_from_its_file() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("link.json");
        assert!(unlinked(&file).is_some());
        std::fs::write(&file, r#"{"connected":true,"new":1}"#).unwrap();
        assert_eq!(unlinked(&file), None);
        std::fs::write(&file, r#"{"connected":false,"why":"refused"}"#).unwrap();
        assert_eq!(unlinked(&file).as_deref(), Some("refused"));
    }

    #[test]
    fn faulty_program_for_pods_is_tolerated() {
        let temp = tempfile::tempdir().unwrap();
        let program = temp.path().join("edge-admin");
        let script = |text: &str| {
            std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            unready_pods(&program, temp.path())
        };
        assert_eq!(unready_pods(Path::new("/nonexistent"), temp.path()), None);
        let said = script(r#"echo '[{"uid":"a","ready":true},{"uid":"b","ready":false}]'"#);
        assert_eq!(said, Some(BTreeSet::from(["b".to_owned()])));
        assert_eq!(script("echo '[]'; exit 1"), None);
        assert_eq!(script("echo no"), None);
    }
}
