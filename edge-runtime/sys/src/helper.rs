//! A helper that outlives the daemon and listens at a Unix socket: found or started, and ended. Does not know their
//! protocol.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use smol::process::Command;
use smol::{Async, Timer};

use crate::{pidfd, socket};

/// How long a new helper may take, and how often is looked.
const START: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);
/// Timeout for a helper that was asked to end.
const END: Duration = Duration::from_secs(2);

/// Connects to the helper at `path`, or starts one by `command`.
///
/// # Errors
/// It cannot be started, has ended instead of listening, or does not listen within five seconds.
pub async fn connect_or_start(path: &Path, command: impl FnOnce() -> Command) -> io::Result<Async<UnixStream>> {
    if let Ok(stream) = socket::connect_beside(path).await {
        return Ok(stream);
    }
    let mut command = command();
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    let mut child = command.spawn()?;
    let tries = START.as_millis() / LOOK.as_millis();
    for _ in 0..tries {
        if let Ok(stream) = socket::connect_beside(path).await {
            return Ok(stream);
        }
        if let Some(status) = child.try_status()? {
            return Err(io::Error::other(format!("it could not start: {status}")));
        }
        Timer::after(LOOK).await;
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Process id of the listener at the other end of a connection.
pub fn pid_of(stream: &Async<UnixStream>) -> Option<u64> {
    getsockopt(stream, PeerCredentials).ok().and_then(|peer| u64::try_from(peer.pid()).ok())
}

/// Kills a helper that takes connections and hangs: another one could not be started beside it.
pub fn kill_hung(stream: &Async<UnixStream>) {
    // The process that has called listen(2), by unix(7); it lives, or the connection would be closed.
    let peer = getsockopt(stream, PeerCredentials).map(|peer| Pid::from_raw(peer.pid()));
    if let Ok(pid) = peer.and_then(|pid| kill(pid, Signal::SIGKILL).map(|()| pid)) {
        log::warn!("helper {pid} hangs, and is killed");
    }
}

/// Ends a helper that an earlier daemon has left, by sending it `words`; no error without one.
pub fn end(path: &Path, words: &[u8]) {
    let Ok(mut stream) = socket::connect(path) else { return };
    let _ = stream.set_read_timeout(Some(END));
    let _ = stream.write_all(words);
    // It ends by ending.
    while stream.read(&mut [0; 512]).is_ok_and(|read| read > 0) {}
    let _ = fs::remove_file(path);
}

/// Kills processes for which `is` accepts program and arguments, and waits until they are gone: helpers whose daemon
/// ended before they listened, and those that did not end when told to. Spares processes in containers: a node there
/// may have the same arguments.
pub fn kill_left(is: impl Fn(&Path, &[&[u8]]) -> bool) {
    let own = i32::try_from(std::process::id()).ok();
    let is_left = |pid: &i32| {
        // A process that has ended has neither.
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        Some(*pid) != own && is(&program, &words) && has_our_root(*pid)
    };
    for _ in 0..END.as_millis() / LOOK.as_millis() {
        let left: Vec<i32> = pidfd::all().filter(&is_left).collect();
        if left.is_empty() {
            return;
        }
        for pid in left {
            if kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
                log::info!("helper {pid} was left, and is killed");
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether a process has the same root directory as this one. False if it has ended.
fn has_our_root(pid: i32) -> bool {
    let root = |of: &str| fs::metadata(format!("/proc/{of}/root")).ok().map(|root| (root.dev(), root.ino()));
    let other = root(&pid.to_string());
    other.is_some() && other == root("self")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn listening_helper_is_not_started_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        let _listener = UnixListener::bind(&socket).expect("listens");
        let found = smol::block_on(connect_or_start(&socket, || panic!("it is there")));
        assert!(found.is_ok());
    }

    #[test]
    fn helper_is_found_and_ended_at_a_long_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("x".repeat(120));
        fs::create_dir(&deep).expect("a folder");
        let path = deep.join("s");
        let listener = socket::listen(&path, 0o600).expect("listens");
        drop(smol::block_on(connect_or_start(&path, || panic!("it is there"))).expect("connected"));
        drop(listener);
        // The listener is gone. `end` removes only the socket of a helper that it could tell.
        end(&path, b"end");
        assert!(path.exists());
        let listener = socket::listen(&path, 0o600).expect("listens");
        let helper = std::thread::spawn(move || drop(listener.accept().expect("somebody calls")));
        end(&path, b"end");
        helper.join().expect("it ends");
        assert!(!path.exists());
    }

    #[test]
    fn helper_that_ends_early_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        let started = smol::block_on(connect_or_start(&socket, || Command::new("false")));
        assert!(started.is_err_and(|error| error.to_string().starts_with("it could not start: ")));
        let started = smol::block_on(connect_or_start(&socket, || Command::new("/nonexistent")));
        assert_eq!(started.err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
    }

    #[test]
    fn hung_helper_is_killed() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        let listens = format!(
            "import socket,time; s=socket.socket(socket.AF_UNIX); s.bind({socket:?}); s.listen(); time.sleep(60)"
        );
        let mut python = std::process::Command::new("python3").args(["-c", &listens]).spawn().expect("python3");
        let stream = smol::block_on(async {
            loop {
                match Async::<UnixStream>::connect(&socket).await {
                    Ok(stream) => return stream,
                    Err(_) => Timer::after(LOOK).await,
                };
            }
        });
        kill_hung(&stream);
        let ended = python.wait().expect("it ends");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
    }

    #[test]
    fn ended_helper_loses_its_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        end(&socket, b"end");
        let listener = UnixListener::bind(&socket).expect("listens");
        let helper = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody calls");
            let mut words = [0; 3];
            stream.read_exact(&mut words).expect("is told");
            words
        });
        end(&socket, b"end");
        assert_eq!((helper.join().ok(), socket.exists()), (Some(*b"end"), false));
    }

    #[test]
    fn only_leftover_helpers_are_killed() {
        let waits = |program: &str, before: &[&str], word: &str| {
            let mut shell = std::process::Command::new(program);
            shell.args(before).args(["-c", "read x; :", word]).stdin(std::process::Stdio::piped());
            let mut child = shell.spawn().expect(program);
            let input = child.stdin.take();
            // The program is there a moment after its process.
            let begun = |program: &Path, words: &[u8]| {
                !program.ends_with("unshare") && words.ends_with(format!("\0{word}\0").as_bytes())
            };
            let of = |name: &str| format!("/proc/{}/{name}", child.id());
            let (exe, cmdline) = (of("exe"), of("cmdline"));
            while !begun(&fs::read_link(&exe).unwrap_or_default(), &fs::read(&cmdline).unwrap_or_default()) {
                assert!(child.try_wait().expect("is ours").is_none(), "{program} ended");
                std::thread::sleep(LOOK);
            }
            (child, input)
        };
        let (mut left, _input) = waits("sh", &[], "left-by-kill_left");
        let mut others = vec![waits("sh", &[], "not-by-kill_left")];
        if nix::unistd::geteuid().is_root() {
            // As in a container. A shell and its libraries are there, too.
            others.push(waits("unshare", &["--root=/usr", "/bin/sh"], "left-by-kill_left"));
        }
        let ended = std::thread::spawn(move || left.wait().expect("it ends"));
        kill_left(|program, words| program.is_absolute() && words.contains(&b"left-by-kill_left".as_slice()));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.join().expect("waits")), Some(9));
        for (other, _input) in &mut others {
            assert!(other.try_wait().expect("is ours").is_none());
            let _ = other.kill().and_then(|()| other.wait());
        }
    }
}
