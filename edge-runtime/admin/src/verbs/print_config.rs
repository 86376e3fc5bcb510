//! `edge-runtime run --print-config` and `config`: the configuration in force, as one that can be saved.

use std::path::Path;

use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::cli::{CliError, Configured, config_file, configure, print};
use edge_runtime::config::{ConfigFile, read_text};
use edge_runtime::devices::check::check;
use edge_runtime::helper::programs::DEVICES;
use serde_json::Value;

pub(super) const VERB: Verb = Verb::helper("print-config", Operands::None, FLAGS, run);

const FLAGS: &[Flag] = &[Flag::value("config", "FILE", ""), Flag::value("node", "NAME", "")];

fn run(given: Given) -> Result<(), CliError> {
    print(in_force(&given, &config_file(&given)?)?.trim_end())
}

/// The configuration that `file` gives this node, as YAML with its defaults.
///
/// # Errors
/// A wrong key or value, also one that a node runs without.
pub(super) fn in_force(given: &Given, file: &Path) -> Result<String, CliError> {
    let typed = ConfigFile::read(file)?;
    printed(given, typed, &read_text(file).unwrap_or_default(), file)
}

/// Same as [`in_force`] for a `file` with this text.
///
/// # Errors
/// Same as [`in_force`].
pub(super) fn of_text(given: &Given, text: &str, file: &Path) -> Result<String, CliError> {
    printed(given, ConfigFile::parse(text, file)?, text, file)
}

fn printed(given: &Given, mut typed: ConfigFile, text: &str, file: &Path) -> Result<String, CliError> {
    let Configured { config, .. } = configure(given, typed.clone(), file)?;
    if let Some(section) = &mut typed.device_twin {
        *section = filled(section, file)?;
    }
    Ok(config.to_yaml(&typed, text)?)
}

/// The section with its defaults, as the helper's program fills it.
fn filled(typed: &Value, file: &Path) -> Result<Value, CliError> {
    let wrong = |why: &str| Err(CliError::Failed(format!("config file {}, key {why}", file.display())));
    match check(&DEVICES.path(), typed) {
        Ok(Ok((filled, unknown))) if unknown.is_empty() => Ok(filled),
        Ok(Ok((_, unknown))) => wrong(&unknown.join(", ")),
        Ok(Err(why)) => wrong(&why),
        Err(error) => wrong(&format!("device-twin: cannot be checked: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Result<(), CliError> {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("config.yaml");
        std::fs::write(&file, text).unwrap();
        let flags = ["--config".as_ref(), file.as_os_str(), "--root".as_ref(), root.path().as_os_str()];
        run(VERB.parse(lexopt::Parser::from_args(flags)).unwrap())
    }

    #[test]
    fn unknown_key_is_refused_and_named() {
        printed("max-pods: 7\nnode-name: edge-1\n").unwrap();
        let Err(CliError::Failed(why)) = printed("max-pots: 7\n") else { panic!("taken") };
        assert!(why.contains("config.yaml") && why.contains("max-pots"), "{why}");
    }
}
