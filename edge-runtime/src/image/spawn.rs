//! The daemon's side of a pull: starts the helper process, sends it the request, waits without blocking, and parses its
//! lines of output. Dropping the future kills the helper; the downloaded part stays on disk.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::image::ImageError;
use crate::image::access::PodLogin;
use crate::image::progress::Progress;
use crate::image::registry_config::RegistryConfig;
use crate::net::proxy::Proxy;
use crate::paths::Paths;
use crate::sys::from_json::from_json;
use crate::sys::program;
use crate::sys::time::io_within;

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
    /// One without `url` if all is direct.
    #[serde(default)]
    pub proxy: Proxy,
}

/// A line that it prints.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Not its last line.
    Progress(Progress),
    /// Id of the image.
    Image(String),
    /// Asked for a look only: the image that is here is not the one to use.
    Stale,
    Error {
        reason: String,
        message: String,
    },
}

/// Timeout of a helper. It gives up a silent registry much earlier; this ends one with a very slow registry. Its
/// download is kept.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);
const LONGEST_ANSWER: usize = 1 << 20;

/// Fetches `image` in a helper process and returns the image's id; its record is in the store then. `tell` hears how far
/// a long pull is.
///
/// # Errors
/// Returns the helper's result, or how it ended.
pub async fn pull(
    paths: &Paths,
    image: &str,
    request: &Request,
    tell: impl FnMut(Progress),
) -> Result<String, ImageError> {
    help(paths, image, request, None, tell).await?.ok_or_else(|| failed(image, "the pull ended and fetched nothing"))
}

/// Asks the registry whether it still serves the local `image` under that name to these logins. Returns its id, or
/// `None` if it must be pulled.
///
/// # Errors
/// Same as [`pull`].
pub async fn check(paths: &Paths, image: &str, request: &Request) -> Result<Option<String>, ImageError> {
    help(paths, image, request, Some("--check"), |_| {}).await
}

async fn help(
    paths: &Paths,
    image: &str,
    request: &Request,
    more: Option<&str>,
    tell: impl FnMut(Progress),
) -> Result<Option<String>, ImageError> {
    let helper = |source| ImageError::Io { path: "/proc/self/exe".into(), what: "cannot run the pull helper", source };
    let mut command = program::itself("pull");
    command.arg("--root").arg(paths.root()).arg("--helper").args(more).arg("--").arg(image);
    let input = serde_json::to_vec(request).map_err(|e| helper(e.into()))?;
    match hear(command, &input, tell).await {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            let minutes = PATIENCE.as_secs() / 60;
            let why = format!("the pull took more than {minutes} minutes and was stopped; it goes on where it was");
            Err(failed(image, &why))
        }
        ended => {
            let (status, last) = ended.map_err(helper)?;
            interpret(status, &last, image)
        }
    }
}

/// Runs the helper to its end. Returns its last line, too.
async fn hear(command: Command, input: &[u8], mut tell: impl FnMut(Progress)) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut last = Vec::new();
    let line = |line: &[u8]| match from_json(line) {
        Ok(Answer::Progress(progress)) => tell(progress),
        _ => last = line.to_vec(),
    };
    let status = io_within(PATIENCE, program::follow(command, input, LONGEST_ANSWER, PATIENCE, line)).await?;
    Ok((status, last))
}

/// Runs any helper: its input, then all of its output.
///
/// # Errors
/// The helper cannot be run, took too long, or failed; then its output is the error.
pub(crate) async fn talk(command: Command, input: &[u8]) -> io::Result<Vec<u8>> {
    let output = program::help(command, input, LONGEST_ANSWER, PATIENCE).await?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said.trim() {
        _ if output.status.success() => Ok(output.stdout),
        "" => Err(io::Error::other(output.status.to_string())),
        said => Err(io::Error::other(said.to_owned())),
    }
}

fn interpret(status: ExitStatus, last: &[u8], image: &str) -> Result<Option<String>, ImageError> {
    match from_json(last) {
        Ok(Answer::Image(id)) => return Ok(Some(id)),
        Ok(Answer::Stale) => return Ok(None),
        Ok(Answer::Error { reason, message }) => return Err(ImageError::Helper { reason, why: message }),
        Ok(Answer::Progress(_)) | Err(_) => {}
    }
    Err(match status.signal() {
        Some(nix::libc::SIGKILL) => failed(image, "the pull was killed, perhaps for want of memory"),
        Some(signal) => failed(image, &format!("the pull ended by signal {signal}")),
        None => failed(image, &format!("the pull ended with {status} and said nothing")),
    })
}

fn failed(image: &str, why: &str) -> ImageError {
    ImageError::Helper { reason: "ErrImagePull".into(), why: format!("{image}: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_shell(script: &str, input: &[u8]) -> Result<String, ImageError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let (status, last) = smol::block_on(hear(command, input, |_| {})).unwrap();
        Ok(interpret(status, &last, "app:v1")?.unwrap_or_else(|| "stale".to_owned()))
    }

    #[test]
    fn progress_is_handed_on_before_the_result() {
        let mut command = Command::new("/bin/sh");
        let lines =
            r#"echo '{"progress":{"bytes":1,"total":4}}'; echo '{"progress":{"bytes":3,"total":4}}'; echo '"stale"'"#;
        command.args(["-c", lines]);
        let mut heard = Vec::new();
        let (status, last) = smol::block_on(hear(command, b"", |progress| heard.push(progress.bytes))).unwrap();
        assert_eq!((interpret(status, &last, "app:v1").unwrap(), heard), (None, vec![1, 3]));
        assert!(
            interpret(status, br#"{"progress":{"bytes":3,"total":4}}"#, "app:v1").is_err(),
            "it was not its last word"
        );
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
    fn dropped_helper_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $$ > pid; exec sleep 1000"]).current_dir(dir.path());
        let pid = || std::fs::read_to_string(dir.path().join("pid")).ok()?.trim().parse::<i32>().ok();
        let soon = async {
            while pid().is_none() {
                smol::Timer::after(Duration::from_millis(5)).await;
            }
        };
        smol::block_on(smol::future::or(async { drop(talk(command, b"").await) }, soon));
        let gone = |_| {
            std::thread::sleep(Duration::from_millis(5));
            !crate::sys::host::is_alive(pid().unwrap())
        };
        assert!((0..1000).any(gone));
    }
}
