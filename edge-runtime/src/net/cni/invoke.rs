//! Runs one plugin to its end: environment, standard input, bounded output, bounded time. Never holds the loop.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};

use super::POD_LINK;
use super::result::{SIZE_LIMIT, failure};

/// Longest that one plugin may take: DHCP is the slowest of them.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much of a plugin's standard error is kept.
const STDERR_LIMIT: usize = 8 * 1024;

/// What stays the same for all plugins of one attachment.
#[derive(Clone, Debug)]
pub struct Environment<'a> {
    pub bin_dirs: &'a [PathBuf],
    pub container_id: &'a str,
    /// Empty once the namespace is gone.
    pub netns: &'a str,
    pub args: &'a str,
}

/// Runs plugin `kind` with `command` (`ADD`, `DEL`, `CHECK`); gives what it printed.
///
/// # Errors
/// The plugin's words, or why it could not be run.
pub async fn invoke(env: &Environment<'_>, kind: &str, command: &str, stdin: &[u8]) -> Result<Vec<u8>, String> {
    let program = find(env.bin_dirs, kind)?;
    let mut process = std::process::Command::new(&program);
    process.env("CNI_COMMAND", command).env("CNI_CONTAINERID", env.container_id).env("CNI_NETNS", env.netns);
    process.env("CNI_IFNAME", POD_LINK).env("CNI_ARGS", env.args).env("CNI_PATH", path_list(env.bin_dirs));
    process.current_dir("/").process_group(0);
    let mut process = smol::process::Command::from(process);
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process.spawn().map_err(|error| format!("run {}: {error}", program.display()))?;
    let group = i32::try_from(child.id()).map(Pid::from_raw);
    let work = async {
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut input) = input {
                // A plugin need not read to the end; its answer says what it made of it.
                let _ = input.write_all(stdin).await;
            }
        };
        let read = async { read_bounded(output, SIZE_LIMIT + 1, true).await };
        let read_errors = async { read_bounded(errors, STDERR_LIMIT, false).await };
        let ((), (stdout, stderr)) = smol::future::zip(write, smol::future::zip(read, read_errors)).await;
        if stdout.len() > SIZE_LIMIT {
            return Err(format!("it printed more than {SIZE_LIMIT} bytes"));
        }
        let status = child.status().await.map_err(|error| error.to_string())?;
        verdict(status, stdout, &stderr)
    };
    let late = async {
        smol::Timer::after(PATIENCE).await;
        Err(format!("it did not end within {} s", PATIENCE.as_secs()))
    };
    let result = work.or(late).await;
    if result.is_err()
        && let Ok(group) = group
    {
        // Its helpers too; none is left when it ended by itself.
        let _ = killpg(group, Signal::SIGKILL);
    }
    result
}

fn verdict(status: ExitStatus, stdout: Vec<u8>, stderr: &[u8]) -> Result<Vec<u8>, String> {
    if status.success() { Ok(stdout) } else { Err(failure(&stdout, stderr, &status.to_string())) }
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

/// `kind` is a bare file name: `conf` has seen to it.
fn find(bin_dirs: &[PathBuf], kind: &str) -> Result<PathBuf, String> {
    let found = bin_dirs.iter().map(|dir| dir.join(kind)).find(|path| path.is_file());
    found.ok_or_else(|| format!("failed to find plugin {kind:?} in path [{}]", path_list(bin_dirs)))
}

fn path_list(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|dir| Path::display(dir).to_string()).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Runs a shell script as a plugin.
    fn run(script: &str) -> Result<String, String> {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("plug");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let bin_dirs = [temp.path().join("nowhere"), temp.path().to_path_buf()];
        let env = Environment { bin_dirs: &bin_dirs, container_id: "id", netns: "/run/ns", args: "A=1" };
        let output = smol::block_on(invoke(&env, "plug", "ADD", b"{\"name\":\"n\"}"))?;
        Ok(String::from_utf8(output).unwrap())
    }

    #[test]
    fn a_plugin_is_told_and_answers() {
        let said = run("echo $CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS; cat").unwrap();
        assert_eq!(said, "ADD id /run/ns eth0 A=1\n{\"name\":\"n\"}");
    }

    #[test]
    fn what_goes_wrong_is_said() {
        assert_eq!(run(r#"echo '{"msg":"no room"}'; exit 1"#).unwrap_err(), "no room");
        assert_eq!(run("echo broken >&2; exit 3").unwrap_err(), "exit status: 3: broken");
        assert!(run("exec yes").unwrap_err().contains("printed more"));
        let env = Environment { bin_dirs: &["/opt/none".into()], container_id: "", netns: "", args: "" };
        let error = smol::block_on(invoke(&env, "bridge", "ADD", b"")).unwrap_err();
        assert_eq!(error, "failed to find plugin \"bridge\" in path [/opt/none]");
    }

    #[test]
    fn a_talkative_plugin_is_not_held() {
        assert_eq!(run("head -c 300000 /dev/zero >&2; echo done").unwrap(), "done\n");
    }
}
