//! Whether the daemon is up: what it says of itself on its socket, and of its link in a file. Starts nothing.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use edge_runtime::link::status::{self, LinkStatus};
use edge_runtime::paths::Paths;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(300);
/// For one answer of a daemon that is there.
const ANSWER: Duration = Duration::from_secs(5);
const LONGEST: u64 = 64 << 10;

/// Waits until the daemon is ready and its link is up.
///
/// # Errors
/// What it still lacked when time was up.
pub(crate) fn wait(paths: &Paths, patience: Duration) -> Result<(), String> {
    let (began, since) = (Instant::now(), SystemTime::now());
    loop {
        match look(paths, since) {
            Ok(()) => return Ok(()),
            Err(why) if began.elapsed() >= patience => return Err(why),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn look(paths: &Paths, since: SystemTime) -> Result<(), String> {
    let socket = health(paths);
    match ask(&socket) {
        Ok((200, _)) => {}
        Ok((_, said)) => return Err(said),
        // A daemon of an older version has none: its link alone tells.
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

fn health(paths: &Paths) -> PathBuf {
    paths.run().join("health.sock")
}

/// Code and text of `/readyz`.
fn ask(socket: &Path) -> io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| io::Error::other("no answer of HTTP"))
}

fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.get(..3)?.parse().ok()?;
    Some((code, body.trim().replace('\n', "; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_code_and_text() {
        let answer = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 12\r\n\r\nstore\nlink\n";
        assert_eq!(parse(answer), Some((503, "store; link".into())));
        assert_eq!(parse("HTTP/1.1 200 OK\r\n\r\n"), Some((200, String::new())));
        assert_eq!((parse("SSH-2.0\r\n\r\n"), parse("HTTP/1.1 \u{e9}x\r\n\r\n"), parse("")), (None, None, None));
    }
}
