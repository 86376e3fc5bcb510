//! The process of a terminal session, as a file for the OCI runtime's `exec --process`.
//!
//! With flags, only runc adds `TERM` to the container's environment; crun 1.8 replaces the environment by it.

use sampan_json::SetField;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::sys::from_json::from_json;

/// Environment variable for a terminal, that of containerd's CRI (internal/cri/server/container_execsync.go).
const TERM: &str = "TERM=xterm";

/// Writes `file`: the process that the `config.json` of `bundle` starts (OCI runtime specification, config.md,
/// Process), with another command and on a terminal. Only root reads it: environments hold secrets.
///
/// # Errors
/// The config cannot be read, the file cannot be written.
pub fn write(bundle: &Path, argv: &[String], file: &Path) -> io::Result<()> {
    let mut config: Value = from_json(&fs::read(bundle.join("config.json"))?)?;
    let process = on_terminal(config.take_at(&["process"]), argv);
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(file)?;
    file.write_all(process.to_string().as_bytes())
}

fn on_terminal(mut process: Value, argv: &[String]) -> Value {
    process.set("args", json!(argv));
    process.set("terminal", true.into());
    let own = process["env"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let env: Vec<&str> = own.filter(|pair| !pair.starts_with("TERM=")).chain([TERM]).collect();
    process.set("env", json!(env));
    process
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_command_and_terminal_is_the_containers() {
        let config = json!({"process": {
            "args": ["sleep"], "cwd": "/srv", "env": ["PATH=/bin", "TERM=dumb", "A=b"], "user": {"uid": 7},
            "noNewPrivileges": true,
        }});
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let file = folder.path().join("process.json");
        write(folder.path(), &["sh".to_owned(), "-i".to_owned()], &file).unwrap();
        let wanted = json!({
            "args": ["sh", "-i"], "cwd": "/srv", "env": ["PATH=/bin", "A=b", "TERM=xterm"], "user": {"uid": 7},
            "noNewPrivileges": true, "terminal": true,
        });
        assert_eq!(serde_json::from_slice::<Value>(&fs::read(file).unwrap()).unwrap(), wanted);
    }
}
