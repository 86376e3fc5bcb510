//! Runs another program to its end, within bounded time and with bounded output. One that is late is killed with all
//! that it started. Knows nothing of what the programs do.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};

/// How much of a program's standard error is kept.
const STDERR_LIMIT: usize = 8 * 1024;
/// Between two looks whether a program that has closed its output has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// Variable with the daemon's settings of the allocator, which keep little memory and cost time: only its own helpers
/// inherit them.
pub(crate) const TUNABLES: &str = "GLIBC_TUNABLES";

/// Result of a program.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    /// The beginning of it.
    pub stderr: Vec<u8>,
}

/// Starts this program again, for one of its verbs. Not by its path, which an upgrade may have given to another file;
/// ps(1) shows the name anyway.
pub fn itself(verb: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("edge-runtime").arg(verb);
    command
}

/// Runs `command` beside the loop. It need not read all of `stdin`.
///
/// # Errors
/// It cannot be run, printed more than `limit` bytes, or did not end within `patience`.
pub async fn run(mut command: Command, stdin: &[u8], limit: usize, patience: Duration) -> io::Result<Output> {
    command.env_remove(TUNABLES);
    run_with(command, Stdio::piped(), stdin, limit, patience).await
}

/// Same as [`run`], for a program whose memory use others decide: it does not inherit this process's protection from
/// the OOM killer.
///
/// # Errors
/// Same as [`run`].
pub async fn run_unprotected(
    mut command: Command,
    stdin: &[u8],
    limit: usize,
    patience: Duration,
) -> io::Result<Output> {
    command.env_remove(TUNABLES);
    run_in(command, (Stdio::piped(), true), stdin, limit, patience).await
}

/// Same as [`run`], with the standard error of this process: the helper logs there.
///
/// # Errors
/// Same as [`run`].
pub async fn help(command: Command, stdin: &[u8], limit: usize, patience: Duration) -> io::Result<Output> {
    run_with(command, Stdio::inherit(), stdin, limit, patience).await
}

/// Runs `command` beside the loop without a time limit, and passes each line that it prints to `line`, without its end.
/// Its standard error is this process's. Dropping the future kills it with all its descendants.
///
/// # Errors
/// It cannot be run, a line has more than `limit` bytes, or it printed nothing for `silence`.
pub async fn follow(
    mut command: Command,
    stdin: &[u8],
    limit: usize,
    silence: Duration,
    mut line: impl FnMut(&[u8]),
) -> io::Result<ExitStatus> {
    command.process_group(0);
    let mut command = smol::process::Command::from(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn()?;
    let mut family = Family::of(child.id());
    if let Some(mut input) = child.stdin.take() {
        // Ignores write errors: if a program ends at once, its exit status explains more, and a program need not read.
        let write = async {
            let _ = input.write_all(stdin).await;
            Ok(())
        };
        write.or(silent(silence)).await?;
    }
    if let Some(mut output) = child.stdout.take() {
        let (mut held, mut piece) = (Vec::new(), vec![0; 4096]);
        while let length @ 1.. = output.read(&mut piece).or(silent(silence)).await? {
            held.extend_from_slice(&piece[..length]);
            while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                line(&held[..end]);
                held.drain(..=end);
            }
            if held.len() > limit {
                return Err(talkative(limit));
            }
        }
    }
    let status = child.status().or(silent(silence)).await?;
    family.spare();
    Ok(status)
}

/// Comes after this time.
async fn silent<T>(silence: Duration) -> io::Result<T> {
    smol::Timer::after(silence).await;
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing was heard of it for {} s", silence.as_secs())))
}

async fn run_with(
    command: Command,
    stderr: Stdio,
    stdin: &[u8],
    limit: usize,
    patience: Duration,
) -> io::Result<Output> {
    run_in(command, (stderr, false), stdin, limit, patience).await
}

async fn run_in(
    mut command: Command,
    (stderr, unprotected): (Stdio, bool),
    stdin: &[u8],
    limit: usize,
    patience: Duration,
) -> io::Result<Output> {
    command.process_group(0);
    let mut command = smol::process::Command::from(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
    let mut child = command.spawn()?;
    let mut family = Family::of(child.id());
    if unprotected {
        super::oom::unprotect(child.id());
    }
    let work = async {
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut input) = input {
                // Its answer tells how it used the part that it read.
                let _ = input.write_all(stdin).await;
            }
        };
        let read = async { read_bounded(output, limit.saturating_add(1), true).await };
        let read_errors = async { read_bounded(errors, STDERR_LIMIT, false).await };
        let ((), (stdout, stderr)) = smol::future::zip(write, smol::future::zip(read, read_errors)).await;
        if stdout.len() > limit {
            return Err(talkative(limit));
        }
        Ok(Output { status: child.status().await?, stdout, stderr })
    };
    let late = async {
        smol::Timer::after(patience).await;
        Err(late(patience))
    };
    let output = work.or(late).await?;
    family.spare();
    Ok(output)
}

/// Runs `command` without input and waits for it. For the start, before the loop runs. Ignores its standard error.
///
/// # Errors
/// Same as [`run`].
pub fn ask(mut command: Command, limit: usize, patience: Duration) -> io::Result<Output> {
    command.process_group(0).env_remove(TUNABLES);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let until = Instant::now() + patience;
    let mut child = command.spawn()?;
    let mut family = Family::of(child.id());
    let mut stdout = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        let mut piece = [0; 4096];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let wait = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], wait) {
                Ok(0) => return Err(late(patience)),
                Err(nix::errno::Errno::EINTR) => continue,
                other => other?,
            };
            match pipe.read(&mut piece)? {
                0 => break,
                length => stdout.extend_from_slice(&piece[..length]),
            }
            if stdout.len() > limit {
                return Err(talkative(limit));
            }
        }
    }
    loop {
        if let Some(status) = child.try_wait()? {
            family.spare();
            return Ok(Output { status, stdout, stderr: Vec::new() });
        }
        if Instant::now() >= until {
            return Err(late(patience));
        }
        std::thread::sleep(PAUSE);
    }
}

fn late(patience: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("it did not end within {} s", patience.as_secs()))
}

fn talkative(limit: usize) -> io::Error {
    io::Error::other(format!("it printed more than {limit} bytes"))
}

/// A program with all its descendants, killed on drop unless it is spared.
struct Family(Option<Pid>);

impl Family {
    fn of(id: u32) -> Self {
        Self(i32::try_from(id).ok().map(Pid::from_raw))
    }

    fn spare(&mut self) {
        self.0 = None;
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group is gone if all processes have ended.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// Reads at most `limit` bytes; then ends, or reads on without keeping so that the writer is not held.
async fn read_bounded(from: Option<impl AsyncReadExt + Unpin>, limit: usize, end: bool) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return kept };
    let mut buffer = vec![0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let room = limit.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..length.min(room)]);
        if end && kept.len() >= limit {
            break;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    /// Whether the process that wrote its number into `file` has gone.
    fn gone(file: &std::path::Path) -> bool {
        let text = std::fs::read_to_string(file).unwrap();
        let pid: i32 = text.trim().parse().unwrap();
        (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !crate::host::is_alive(pid)
        })
    }

    #[test]
    fn a_program_that_hangs_ends_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        for (name, script) in
            [("open", "sleep 1000 & echo $! >F; wait"), ("closed", "exec >&-; echo $$ >F; sleep 1000")]
        {
            let file = dir.path().join(name);
            let script = script.replace('F', &file.display().to_string());
            let patience = Duration::from_millis(500);
            let error = smol::block_on(run(shell(&script), b"", 100, patience)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            assert!(gone(&file), "{name}");
            assert_eq!(ask(shell(&script), 100, patience).unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert!(gone(&file), "{name}, asked");
        }
        // The future is dropped.
        let file = dir.path().join("dropped");
        let script = format!("echo $$ >{}; sleep 1000", file.display());
        let left =
            smol::future::or(async { run(shell(&script), b"", 100, Duration::from_secs(60)).await.map(drop) }, async {
                while !std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')) {
                    smol::Timer::after(Duration::from_millis(5)).await;
                }
                Ok(())
            });
        smol::block_on(left).unwrap();
        assert!(gone(&file));
    }

    #[test]
    fn lines_are_handed_on_as_they_come_and_have_a_limit() {
        let mut lines = Vec::new();
        let said = |line: &[u8]| lines.push(String::from_utf8_lossy(line).into_owned());
        let status =
            smol::block_on(follow(shell("read x; echo $x; printf 'a\nb\nc'; exit 3"), b"in\n", 100, LONG, said))
                .unwrap();
        assert_eq!((status.code(), lines), (Some(3), vec!["in".to_owned(), "a".into(), "b".into()]));
        let long = smol::block_on(follow(shell("head -c 100000 /dev/zero; sleep 1000"), b"", 5000, LONG, |_| {}));
        assert!(long.unwrap_err().to_string().contains("5000"));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("dropped");
        let script = format!("echo $$ >{}; sleep 1000", file.display());
        let told = std::cell::Cell::new(false);
        let look = async {
            while !std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')) {
                smol::Timer::after(Duration::from_millis(5)).await;
            }
            told.set(true);
        };
        let run = async { drop(follow(shell(&script), b"", 100, LONG, |_| {}).await) };
        smol::block_on(smol::future::or(run, look));
        assert!(told.get() && gone(&file));
    }

    #[test]
    fn silent_program_ends_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let order = vec![b'x'; 1 << 20];
        for (name, script) in [
            ("mute", "cat >/dev/null; sleep 1000 & echo $! >F; wait"),
            ("deaf", "sleep 1000 & echo $! >F; wait"),
            ("closed", "cat >/dev/null; exec >&-; echo $$ >F; sleep 1000"),
        ] {
            let file = dir.path().join(name);
            let script = script.replace('F', &file.display().to_string());
            let heard = follow(shell(&script), &order, 100, Duration::from_millis(500), |_| {});
            let error = smol::block_on(heard).unwrap_err();
            assert!(
                error.kind() == io::ErrorKind::TimedOut && error.to_string().contains("nothing was heard"),
                "{name}"
            );
            assert!(gone(&file), "{name}");
        }
        // A program that prints now and then continues, whatever it prints.
        let script = "for i in 1 2 3 4 5 6; do echo; sleep 0.2; done";
        let mut lines = 0;
        let heard = follow(shell(script), b"", 100, Duration::from_secs(1), |_| lines += 1);
        assert!(smol::block_on(heard).unwrap().success());
        assert_eq!(lines, 6);
    }

    #[test]
    fn an_unprotected_program_is_an_ordinary_process() {
        let patience = Duration::from_secs(20);
        let ask = "read x; cat /proc/self/oom_score_adj";
        let output = smol::block_on(run_unprotected(shell(ask), b"\n", 100, patience)).unwrap();
        let expected = crate::host::oom_score_adj().max(0);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected.to_string());
    }

    #[test]
    fn other_programs_do_not_inherit_the_daemons_allocator() {
        let command = || {
            let mut command = shell("echo ${GLIBC_TUNABLES-none}");
            command.env(TUNABLES, "glibc.malloc.tcache_count=0");
            command
        };
        assert_eq!(ask(command(), 100, LONG).unwrap().stdout, b"none\n");
        assert_eq!(smol::block_on(run(command(), b"", 100, LONG)).unwrap().stdout, b"none\n");
        assert_eq!(smol::block_on(run_unprotected(command(), b"", 100, LONG)).unwrap().stdout, b"none\n");
    }

    #[test]
    fn output_is_taken_up_to_its_limit() {
        let patience = Duration::from_secs(20);
        let script = "cat; echo why >&2; exit 3";
        let output = smol::block_on(run(shell(script), b"in", 100, patience)).unwrap();
        assert_eq!((output.status.code(), &*output.stdout, &*output.stderr), (Some(3), &b"in"[..], &b"why\n"[..]));
        assert!(
            smol::block_on(run(shell("exec yes"), b"", 100, patience)).unwrap_err().to_string().contains("100 bytes")
        );
        let output = ask(shell("echo out; exit 3"), 100, patience).unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(3), &b"out\n"[..]));
        assert!(ask(shell("exec yes"), 100, patience).unwrap_err().to_string().contains("100 bytes"));
        assert!(ask(Command::new("/nowhere/program"), 100, patience).is_err());
    }
}
