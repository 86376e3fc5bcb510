//! Runs one plugin to its end: environment, standard input, bounded output, bounded time. Never holds the loop.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::POD_LINK;
use super::result::{SIZE_LIMIT, failure};
use crate::sys::program;

/// Longest that one plugin may take: DHCP is the slowest of them.
const PATIENCE: Duration = Duration::from_secs(60);

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
    let path = find(env.bin_dirs, kind)?;
    let mut process = Command::new(&path);
    process.env("CNI_COMMAND", command).env("CNI_CONTAINERID", env.container_id).env("CNI_NETNS", env.netns);
    process.env("CNI_IFNAME", POD_LINK).env("CNI_ARGS", env.args).env("CNI_PATH", path_list(env.bin_dirs));
    process.current_dir("/");
    match program::run(process, stdin, SIZE_LIMIT, PATIENCE).await {
        Ok(output) => verdict(output.status, output.stdout, &output.stderr),
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Err(error.to_string()),
        Err(error) => Err(format!("run {}: {error}", path.display())),
    }
}

fn verdict(status: ExitStatus, stdout: Vec<u8>, stderr: &[u8]) -> Result<Vec<u8>, String> {
    if status.success() { Ok(stdout) } else { Err(failure(&stdout, stderr, &status.to_string())) }
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
    fn plugin_gets_input_and_answers() {
        let said = run("echo $CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS; cat").unwrap();
        assert_eq!(said, "ADD id /run/ns eth0 A=1\n{\"name\":\"n\"}");
    }

    #[test]
    fn failure_of_a_plugin_is_reported() {
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
