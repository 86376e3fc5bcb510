//! How answers are given: for people, or as JSON by `--json` or `-o json`.

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Flag, Given, JSON};

pub(crate) const OUTPUT: Flag = Flag::value("output", "json", "as JSON, like --json").short('o');

/// # Errors
/// Another form is asked for.
pub(crate) fn wants_json(given: &Given) -> Result<bool, CliError> {
    match given.one::<String>(OUTPUT.long)?.as_deref() {
        None => Ok(given.has(JSON.long)),
        Some("json") => Ok(true),
        Some(other) => Err(CliError::Usage(format!("-o {other}: only json is known"))),
    }
}
