//! The daemon's side of a pull: starts the helper process, gives it what it needs, waits without blocking, and turns
//! its one line into a result. A helper that is no longer waited for is killed; what it fetched stays on disk.
//!
//! Uses no async-process: its reaper is a thread or a SIGCHLD handler, and here the end of a pipe says the same.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smol::future::or;
use smol::io::AsyncReadExt;
use smol::{Async, Timer};

use crate::image::ImageError;
use crate::image::access::PodLogin;
use crate::image::registry_config::RegistryConfig;
use crate::paths::Paths;
use crate::sys::program;

/// What the helper reads from its standard input, as JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Docker config JSON, or a list of such documents, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// Pull secrets of the pods that wait, tried before all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<PodLogin>,
    pub registries: Vec<RegistryConfig>,
    /// Docker config JSON of the node, behind all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// The one line it prints.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Id of the image.
    Image(String),
    /// Asked for a look only: the image that is here is not the one to use.
    Stale,
    Error {
        reason: String,
        message: String,
    },
}

/// The helper gives up on a silent peer much sooner; this ends one that is fed drop by drop. Its download is kept.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);
/// From the end of its output to its end.
const FAREWELL: Duration = Duration::from_secs(10);
const LONGEST_ANSWER: u64 = 1 << 20;

/// Fetches `image` in a helper process and returns the image's id; its record is in the store then.
///
/// # Errors
/// What the helper says, or how it ended.
pub async fn pull(paths: &Paths, image: &str, request: &Request) -> Result<String, ImageError> {
    match help(paths, image, request, None).await? {
        Said::Image(id) => Ok(id),
        Said::Stale => Err(ImageError::Helper {
            reason: "ErrImagePull".into(),
            why: format!("{image}: the pull ended and fetched nothing"),
        }),
    }
}

/// Asks the registry whether `image`, which is here, is what it has by that name and gives to these logins: its id, or
/// none where it must be pulled.
///
/// # Errors
/// As [`pull`].
pub async fn check(paths: &Paths, image: &str, request: &Request) -> Result<Option<String>, ImageError> {
    match help(paths, image, request, Some("--check")).await? {
        Said::Image(id) => Ok(Some(id)),
        Said::Stale => Ok(None),
    }
}

enum Said {
    Image(String),
    Stale,
}

async fn help(paths: &Paths, image: &str, request: &Request, more: Option<&str>) -> Result<Said, ImageError> {
    let helper = |source| ImageError::Io { path: "/proc/self/exe".into(), what: "cannot run the pull helper", source };
    let mut command = program::itself("pull");
    command.arg("--root").arg(paths.root()).arg("--helper").args(more).arg("--").arg(image);
    let output = run(command, &serde_json::to_vec(request).map_err(|e| helper(e.into()))?).await.map_err(helper)?;
    interpret(&output, image)
}

/// Runs any helper: its input, then all of its output.
///
/// # Errors
/// It cannot be run, took too long, or failed; then what it said is the error.
pub(crate) async fn talk(command: Command, input: &[u8]) -> io::Result<Vec<u8>> {
    let output = run(command, input).await?;
    let said = || String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status {
        Some(status) if status.success() => Ok(output.stdout),
        Some(status) if output.stdout.is_empty() => Err(io::Error::other(status.to_string())),
        Some(_) => Err(io::Error::other(said())),
        None => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// What a helper left behind.
struct Output {
    stdout: Vec<u8>,
    /// None: out of time.
    status: Option<ExitStatus>,
}

async fn run(mut command: Command, input: &[u8]) -> io::Result<Output> {
    let mut helper = Guard(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let (Some(stdin), Some(stdout)) = (helper.0.stdin.take(), helper.0.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut stdout = Async::new(stdout)?.take(LONGEST_ANSWER);
    let talk = async {
        write_all(Async::new(stdin)?, input).await?;
        let mut answer = Vec::new();
        stdout.read_to_end(&mut answer).await?;
        io::Result::Ok(Some(answer))
    };
    let timeout = async {
        Timer::after(PATIENCE).await;
        Ok(None)
    };
    let Some(answer) = or(talk, timeout).await? else { return Ok(Output { stdout: Vec::new(), status: None }) };
    let pause = Duration::from_millis(2);
    for _ in 0..FAREWELL.as_millis() / pause.as_millis() {
        if let Some(status) = helper.0.try_wait()? {
            return Ok(Output { stdout: answer, status: Some(status) });
        }
        Timer::after(pause).await;
    }
    Ok(Output { stdout: answer, status: None })
}

/// A helper that ends before it read everything has an answer all the same.
async fn write_all(stdin: Async<std::process::ChildStdin>, mut input: &[u8]) -> io::Result<()> {
    while !input.is_empty() {
        stdin.writable().await?;
        let mut pipe = stdin.get_ref();
        match pipe.write(input) {
            Ok(n) => input = &input[n..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Kills on drop. The entry of a killed child is collected here if it ends at once, else at the end of the daemon.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.try_wait();
    }
}

fn interpret(output: &Output, image: &str) -> Result<Said, ImageError> {
    let failed =
        |why: String| Err(ImageError::Helper { reason: "ErrImagePull".into(), why: format!("{image}: {why}") });
    match serde_json::from_slice(&output.stdout) {
        Ok(Answer::Image(id)) => return Ok(Said::Image(id)),
        Ok(Answer::Stale) => return Ok(Said::Stale),
        Ok(Answer::Error { reason, message }) => return Err(ImageError::Helper { reason, why: message }),
        Err(_) => {}
    }
    match output.status {
        None => failed(format!(
            "the pull took more than {} minutes and was stopped; it goes on where it was",
            PATIENCE.as_secs() / 60
        )),
        Some(status) => match status.signal() {
            Some(nix::libc::SIGKILL) => failed("the pull was killed, perhaps for want of memory".into()),
            Some(signal) => failed(format!("the pull ended by signal {signal}")),
            None => failed(format!("the pull ended with {status} and said nothing")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_shell(script: &str, input: &[u8]) -> Result<String, ImageError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let output = smol::block_on(run(command, input)).unwrap();
        match interpret(&output, "app:v1")? {
            Said::Image(id) => Ok(id),
            Said::Stale => Ok("stale".to_owned()),
        }
    }

    #[test]
    fn the_one_line_becomes_a_result() {
        assert_eq!(run_shell(r#"cat >/dev/null; echo '{"image":"sha256:1"}'"#, &[b'x'; 200_000]).unwrap(), "sha256:1");
        assert_eq!(run_shell(r#"echo '"stale"'"#, b"").unwrap(), "stale");
        let error =
            run_shell(r#"echo '{"error":{"reason":"RegistryUnavailable","message":"no road"}}'"#, &[b'x'; 200_000]);
        let error = error.unwrap_err();
        assert_eq!((error.reason(), error.to_string().as_str()), ("RegistryUnavailable", "no road"));
        for (script, expect) in [("exit 3", "exit status: 3"), ("kill -9 $$", "memory"), ("kill -24 $$", "signal 24")] {
            let error = run_shell(script, b"").unwrap_err();
            assert_eq!(error.reason(), "ErrImagePull");
            assert!(error.to_string().contains(expect), "{error}");
        }
    }

    #[test]
    fn a_helper_nobody_waits_for_is_killed() {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000");
        let mut guard = Guard(command.spawn().unwrap());
        let pid = nix::unistd::Pid::from_raw(i32::try_from(guard.0.id()).unwrap());
        assert!(guard.0.try_wait().unwrap().is_none());
        drop(guard);
        let gone = |_| nix::sys::wait::waitpid(pid, None).is_err() || nix::sys::signal::kill(pid, None).is_err();
        assert!((0..100).any(gone));
    }
}
