//! The daemon: whether it runs, is the installed program and is ready, and its last errors.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use edge_runtime::link::identity::Identity;
use edge_runtime::paths::Paths;
use sampan_sys::pidfd;

use crate::doctor::finding::Finding;
use crate::doctor::host::{Host, ask, text};

/// Timeout for its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most of an answer, and of lines of the journal that are looked through and shown.
const LONGEST: u64 = 4 << 20;
const LINES: &str = "400";
const SHOWN: usize = 3;

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pid: Option<i32>,
    /// It has joined or has static pods: without either the service does not start the daemon (conditions of its unit).
    has_work: bool,
    /// Its file was replaced by another one.
    is_replaced: bool,
    /// Its version and the one of this program.
    version: Option<String>,
    own_version: &'static str,
    /// Status and body of `/readyz`, or the error.
    ready: Option<Result<(bool, String), String>>,
    errors: Vec<String>,
}

/// Process id of the daemon of this root, if it runs.
pub(crate) fn pid(paths: &Paths) -> Option<i32> {
    let pid: i32 = text(paths.run().join("daemon.lock")).parse().ok()?;
    // The file stays; only the lock's holder is the process that it names.
    let locks = text("/proc/locks");
    let named = format!(" {pid} ");
    let holds = locks.lines().any(|line| line.contains("FLOCK") && line.contains(&named));
    (holds && pidfd::stat(pid).is_some_and(|stat| !stat.ended)).then_some(pid)
}

/// The daemon's answer at its socket: whether the status is a success, and the body.
///
/// # Errors
/// No answer in time.
pub(crate) fn get(socket: &Path, what: &str) -> std::io::Result<(bool, String)> {
    let mut stream = sampan_sys::socket::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {what} HTTP/1.1\r\nHost: node\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok((head.contains(" 200 "), body.to_owned()))
}

pub(crate) fn look(host: &Host) -> Facts {
    let pid = pid(&host.paths);
    let exe = pid.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok());
    let socket = host.paths.health();
    let ask_daemon = |what| get(&socket, what).map_err(|error| format!("{}: {error}", socket.display()));
    let ready = pid.map(|_| ask_daemon("/readyz"));
    // An unresponsive daemon is not asked twice.
    let answers = ready.as_ref().is_some_and(Result::is_ok);
    let metrics = answers.then(|| ask_daemon("/metrics").ok()).flatten().map(|(_, body)| body);
    let version = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("sampan_node_info{version=\""))?.to_owned();
        line.split('"').next().map(str::to_owned)
    };
    Facts {
        has_work: has_work(&host.paths),
        is_replaced: exe.is_some_and(|exe| exe.to_string_lossy().ends_with(" (deleted)")),
        version: metrics.and_then(version),
        own_version: env!("CARGO_PKG_VERSION"),
        ready,
        errors: if host.is_machine() { errors() } else { Vec::new() },
        pid,
    }
}

fn has_work(paths: &Paths) -> bool {
    let has_static_pods = || std::fs::read_dir(paths.static_pods()).is_ok_and(|mut files| files.next().is_some());
    !matches!(Identity::load(paths), Ok(None)) || has_static_pods()
}

/// The last lines of the journal in which the daemon complains.
fn errors() -> Vec<String> {
    let args = ["-u", "edge-runtime.service", "-n", LINES, "-o", "cat", "--since", "-1d", "--no-pager", "-q"];
    let lines = ask("journalctl", &args).unwrap_or_default();
    let mut errors: Vec<String> = lines.lines().filter(|line| line.starts_with("ERROR ")).map(str::to_owned).collect();
    errors.split_off(errors.len().saturating_sub(SHOWN))
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(pid) = facts.pid else {
        if facts.has_work {
            let cure = "systemctl enable --now edge-runtime; then: journalctl -u edge-runtime -e";
            let why = "containers go on, but none is started again, and the cloud hears nothing of them";
            found.push(Finding::error("daemon", "edge-runtime does not run", why, cure));
        } else {
            found.push(Finding::ok("daemon", "does not run: this device has not joined, and has no static pods"));
        }
        found.extend(complaints(facts));
        return found;
    };
    found.push(Finding::ok("daemon", format!("runs as process {pid}")));
    let restart = "systemctl restart edge-runtime (containers go on)";
    let other = facts.version.as_deref().filter(|version| *version != facts.own_version);
    if facts.is_replaced || other.is_some() {
        let what = match other {
            Some(version) => format!("version {version} runs, and {} is installed", facts.own_version),
            None => "the program that runs is not the one that is installed".to_owned(),
        };
        found.push(Finding::warning("drift", what, "what an upgrade mended is not in force", restart));
    }
    match &facts.ready {
        Some(Ok((true, _))) => found.push(Finding::ok("ready", "the daemon says that the node is ready")),
        Some(Ok((false, body))) => {
            let failed: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
            let cure = format!("cure what it names; {restart} if nothing else is found");
            let what = format!("the node is not ready: {}", failed.join("; "));
            found.push(Finding::error("ready", what, "no new pod is started here", cure));
        }
        Some(Err(error)) => {
            let what = format!("the daemon runs and does not answer: {error}");
            found.push(Finding::error(
                "ready",
                what,
                "its loop is stuck, or it is of a version without this socket",
                restart,
            ));
        }
        None => {}
    }
    found.extend(complaints(facts));
    found
}

fn complaints(facts: &Facts) -> Option<Finding> {
    let last = facts.errors.last()?;
    let what = format!("{} errors in the last lines of a day's log; the last: {last}", facts.errors.len());
    let why = "something that the node tried has failed";
    Some(Finding::warning("log", what, why, "journalctl -u edge-runtime --since -1d | grep ERROR"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    fn well() -> Facts {
        Facts {
            pid: Some(7),
            has_work: true,
            version: Some("1.0.0".into()),
            own_version: "1.0.0",
            ready: Some(Ok((true, "[+]loop ok\n".into()))),
            ..Facts::default()
        }
    }

    #[test]
    fn a_daemon_that_is_gone_stuck_or_old_is_found() {
        assert_fine(&judge(&well()));
        let judge = |facts| judge(&facts);
        assert_found(
            &judge(Facts { pid: None, ..well() }),
            "daemon",
            Severity::Error,
            "systemctl enable --now edge-runtime",
        );
        let replaced = judge(Facts { is_replaced: true, ..well() });
        assert_found(&replaced, "drift", Severity::Warning, "systemctl restart edge-runtime");
        let old = judge(Facts { version: Some("0.9.0".into()), ..well() });
        assert_found(&old, "drift", Severity::Warning, "systemctl restart");
        let unready = Facts { ready: Some(Ok((false, "[+]loop ok\n[-]network failed: no cni\n".into()))), ..well() };
        let unready = judge(unready);
        assert_found(&unready, "ready", Severity::Error, "cure what it names");
        assert!(unready.iter().any(|one| one.what.contains("network failed: no cni")));
        assert_found(
            &judge(Facts { ready: Some(Err("timed out".into())), ..well() }),
            "ready",
            Severity::Error,
            "systemctl restart",
        );
        let loud = judge(Facts { errors: vec!["ERROR [x] disk".into()], ..well() });
        assert_found(&loud, "log", Severity::Warning, "grep ERROR");
    }

    #[test]
    fn device_without_work_needs_no_daemon() {
        assert_fine(&judge(&Facts { pid: None, has_work: false, ..well() }));
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        assert!(!has_work(&paths));
        std::fs::create_dir_all(paths.static_pods()).unwrap();
        assert!(!has_work(&paths), "as the package installs it");
        std::fs::write(paths.static_pods().join("pod.yaml"), "").unwrap();
        assert!(has_work(&paths));
    }

    #[test]
    fn lock_file_without_a_holder_is_not_a_daemon() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        assert_eq!(pid(&paths), None);
        std::fs::create_dir_all(paths.run()).unwrap();
        std::fs::write(paths.run().join("daemon.lock"), "1\n").unwrap();
        assert_eq!(pid(&paths), None);
    }
}
