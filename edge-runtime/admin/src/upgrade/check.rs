//! Checks whether received programs run on this machine and match their manifest, before they get anything of the node.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use edge_runtime::paths::Paths;
use ring::digest::{SHA256, digest};
use sampan_launcher::versions::{ADMIN, DAEMON};
use serde::Deserialize;

use super::error::UpgradeError;
use crate::program::said;

/// Timeout for an answer of the new program: a board's card is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Content of `manifest.json`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: String,
    /// Go's name, `arm64`.
    pub(crate) architecture: String,
    /// Hex of SHA-256 of each program, by name.
    pub(crate) files: BTreeMap<String, String>,
}

/// Go's name of this machine's architecture, as far as these programs run on it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// # Errors
/// The reason why it does not fit.
pub(super) fn check(folder: &Path, paths: &Paths) -> Result<Manifest, UpgradeError> {
    let bad = |what: &str, why: String| UpgradeError::Bad { what: what.to_owned(), why };
    let file = folder.join("manifest.json");
    let text =
        fs::read(&file).map_err(|_| bad("manifest.json", "is not there: this is no version of edge-runtime".into()))?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| bad("manifest.json", error.to_string()))?;
    if manifest.architecture != architecture() {
        let why = format!("these programs are for {}, this machine is {}", manifest.architecture, architecture());
        return Err(bad("manifest.json", why));
    }
    for name in [DAEMON, ADMIN].into_iter().chain(manifest.files.keys().map(String::as_str)) {
        // A name that is not taken from a bundle is not there, wherever it would lead.
        let found = (!name.contains('/')).then(|| fs::read(folder.join(name)).ok()).flatten();
        let found = found.map(|bytes| hex(digest(&SHA256, &bytes).as_ref()));
        match (found, manifest.files.get(name)) {
            (Some(found), Some(told)) if found == *told => {}
            (Some(_), Some(_)) => {
                return Err(bad(name, "is not what manifest.json says: the bundle is damaged".into()));
            }
            (None, _) => return Err(bad(name, "is not in the bundle".into())),
            (_, None) => return Err(bad(name, "is not in manifest.json".into())),
        }
    }
    let daemon = folder.join(DAEMON);
    let said = ask(&daemon, &["version"])?;
    let version = said.split_whitespace().nth(1).unwrap_or_default();
    if version != manifest.version {
        let why = format!("says that it is '{}', manifest.json that it is {}", said.trim(), manifest.version);
        return Err(bad(DAEMON, why));
    }
    let scratch = folder.join("selftest");
    let tested = ask(&daemon, &["selftest", "--root", &scratch.display().to_string()]);
    let _ = fs::remove_dir_all(&scratch);
    tested?;
    // The configuration of this node, if there is one, must be valid for the new version.
    ask(&daemon, &["run", "--print-config", "--root", &paths.root().display().to_string()])?;
    Ok(manifest)
}

/// Returns the output of a program, which must exit with success.
fn ask(program: &Path, args: &[&str]) -> Result<String, UpgradeError> {
    let what = format!("edge-runtime {}", args.join(" "));
    let bad = |why: String| UpgradeError::Bad { what: what.clone(), why };
    let mut command = Command::new(program);
    command.args(args);
    match said(command, PATIENCE).map_err(|error| bad(error.to_string()))? {
        (status, text) if status.success() => Ok(text),
        (status, text) => Err(bad(format!("{status}: {}", text.trim()))),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    /// A folder with two scripts for programs; the daemon's is this.
    fn folder(temp: &Path, script: &str) -> Result<Manifest, UpgradeError> {
        let text = format!("#!/bin/sh\n{script}\n");
        let sum = hex(digest(&SHA256, text.as_bytes()).as_ref());
        for name in [DAEMON, ADMIN] {
            fs::write(temp.join(name), &text).unwrap();
            fs::set_permissions(temp.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let manifest = json!({"version": "2.0", "architecture": architecture(), "files": {DAEMON: sum, ADMIN: sum}});
        fs::write(temp.join("manifest.json"), manifest.to_string()).unwrap();
        check(temp, &Paths::new(temp))
    }

    #[test]
    fn unfit_programs_are_refused_by_name() {
        let temp = tempfile::tempdir().unwrap();
        let why = |done: Result<Manifest, UpgradeError>| done.unwrap_err().to_string();
        assert!(why(check(temp.path(), &Paths::new(temp.path()))).contains("manifest.json: is not there"));
        assert_eq!(folder(temp.path(), "[ $1 = version ] && echo edge-runtime 2.0; exit 0").unwrap().version, "2.0");
        assert!(why(folder(temp.path(), "echo edge-runtime 1.0")).contains("manifest.json that it is 2.0"));
        let broken = "[ $1 = version ] && echo edge-runtime 2.0 && exit; echo no disk; exit 1";
        assert!(why(folder(temp.path(), broken)).contains("no disk"));
        let config = "[ $1 = version ] && echo edge-runtime 2.0; [ $1 != run ] || { echo key x; exit 1; }";
        assert!(why(folder(temp.path(), config)).contains("key x"));
        fs::write(temp.path().join(DAEMON), "\x7fELF of another machine").unwrap();
        assert!(why(check(temp.path(), &Paths::new(temp.path()))).contains("damaged"));
        let other = json!({"version": "2.0", "architecture": "riscv64", "files": {}});
        fs::write(temp.path().join("manifest.json"), other.to_string()).unwrap();
        assert!(why(check(temp.path(), &Paths::new(temp.path()))).contains("riscv64"));
    }
}
