//! Asks the helper's program whether its section of the configuration is right. Knows no key of it.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sampan_devices_control::WRONG_SETTINGS;
use serde_json::Value;

use crate::sys::from_json::from_json;
use crate::sys::program;

/// Timeout for a program that only reads and prints: a disk may be slow.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of what is printed.
const LIMIT: usize = 64 << 10;

/// Returns the section with its defaults and the warnings about unknown keys, or the reason why it is invalid.
///
/// # Errors
/// The program cannot be run, or says nothing of sense.
pub fn check(program: &Path, typed: &Value) -> io::Result<Result<(Value, Vec<String>), String>> {
    let mut command = Command::new(program);
    command.arg("--check-settings");
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", program.display()));
    let text = serde_json::to_vec(typed)?;
    let output = smol::block_on(program::run(command, &text, LIMIT, PATIENCE)).map_err(named)?;
    if output.status.code() == Some(WRONG_SETTINGS.into()) {
        return Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    if !output.status.success() {
        return Err(named(io::Error::other(output.status.to_string())));
    }
    let mut read: Value = from_json(&output.stdout).map_err(io::Error::from).map_err(named)?;
    let unknown = read["unknown"].as_array().into_iter().flatten();
    let unknown = unknown.filter_map(Value::as_str).map(|key| format!("{key}: unknown field")).collect();
    Ok(Ok((read.get_mut("settings").map(Value::take).unwrap_or_default(), unknown)))
}
