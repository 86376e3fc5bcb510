//! `edge-runtime config set KEY VALUE`: changes a key of the configuration file, if a node would run with the result.

use std::path::Path;

use edge_runtime::cli::verb::Given;
use edge_runtime::cli::{CliError, print};
use edge_runtime::config::read_text;
use sampan_launcher::config_lock;
use sampan_sys::files::{named, unless_missing};
use serde_yaml_ng::Value;

use crate::config_text;
use crate::man::keys::KEYS;
use crate::verbs::print_config::of_text;

pub(super) fn set(given: &Given, file: &Path, key: &str, typed: &str) -> Result<(), CliError> {
    let path = path(key).map_err(CliError::Failed)?;
    // The lock makes the folder: a value that is refused must not.
    changed(given, file, &path, typed)?;
    let _lock = config_lock::take(file)?;
    let (before, after) = changed(given, file, &path, typed)?;
    if after == before {
        return print(&format!("{key} has this value already"));
    }
    config_text::write(file, &after).map_err(named(file))?;
    print(&format!("{key} is set in {}; in force after: systemctl restart edge-runtime", file.display()))
}

/// The text of the file, and the text with the value.
///
/// # Errors
/// The file cannot be read, or a node would not run with the result.
fn changed(given: &Given, file: &Path, path: &[&str], typed: &str) -> Result<(String, String), CliError> {
    let before = unless_missing(read_text(file)).map_err(named(file))?.unwrap_or_default();
    let after = accepted(&values(typed), |value| {
        let why = |why: String| CliError::Failed(format!("{}: {why}", file.display()));
        let text = config_text::set(&before, path, value).map_err(why)?;
        of_text(given, &text, file)?;
        Ok(text)
    });
    match after {
        Ok(after) => Ok((before, after)),
        Err(CliError::Failed(why)) => Err(CliError::Failed(format!("{why}; nothing was changed"))),
        Err(other) => Err(other),
    }
}

/// The keys that lead to a value. Names that users choose may have dots: `labels.example.com/site`.
fn path(key: &str) -> Result<Vec<&str>, String> {
    for known in KEYS {
        match key.strip_prefix(known.name) {
            Some("") => return Ok(known.name.split('.').collect()),
            Some(rest) if rest.len() > 1 && rest.starts_with('.') => match known.kind {
                "MAPPING" => return Ok(known.name.split('.').chain(rest[1..].split('.')).collect()),
                kind if kind.starts_with('{') => return Ok(known.name.split('.').chain([&rest[1..]]).collect()),
                _ => {}
            },
            _ => {}
        }
    }
    let section = format!("{key}.");
    let below: Vec<&str> = KEYS.iter().map(|known| known.name).filter(|name| name.starts_with(&section)).collect();
    Err(match below.as_slice() {
        [] => format!("the configuration has no key {key}: edge-runtime config get prints all keys"),
        _ => format!("{key} is a section; set one of {}", below.join(", ")),
    })
}

/// Meanings of `typed`: YAML, then plain text. A number that YAML would write in another way is text first: the label
/// `1.10` is not `1.1`.
fn values(typed: &str) -> Vec<Value> {
    let text = Value::String(typed.to_owned());
    match serde_yaml_ng::from_str::<Value>(typed) {
        Ok(Value::Number(number)) if number.to_string() != typed => vec![text, Value::Number(number)],
        Ok(value) if value != text => vec![value, text],
        _ => vec![text],
    }
}

/// The result for the first of the values that has one; else the error of the first.
fn accepted<T>(values: &[Value], mut with: impl FnMut(&Value) -> Result<T, CliError>) -> Result<T, CliError> {
    let mut first = None;
    for value in values {
        match with(value) {
            Ok(done) => return Ok(done),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| CliError::Usage("VALUE is missing".to_owned())))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::super::{VERB, run};
    use super::*;

    /// A node's file with this text, and what sets a key of it.
    fn node(text: &str) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("config.yaml");
        fs::write(&file, text).unwrap();
        (root, file)
    }

    fn set(root: &Path, file: &Path, key: &str, value: &str) -> Result<(), CliError> {
        let flags = ["--config".as_ref(), file.as_os_str(), "--root".as_ref(), root.as_os_str()];
        let words = ["set", key, value].map(std::ffi::OsStr::new);
        run(VERB.parse(lexopt::Parser::from_args(words.into_iter().chain(flags))).unwrap())
    }

    #[test]
    fn key_is_split_where_the_file_nests() {
        for (key, wanted) in [
            ("max-pods", &["max-pods"][..]),
            ("network.cni.conf-dir", &["network", "cni", "conf-dir"]),
            ("labels.example.com/site", &["labels", "example.com/site"]),
            ("eviction.hard.memory.available", &["eviction", "hard", "memory.available"]),
            ("device-twin.mqtt.broker", &["device-twin", "mqtt", "broker"]),
            ("devices.sampan.dev/gpio", &["devices", "sampan.dev/gpio"]),
        ] {
            assert_eq!(path(key).unwrap(), wanted, "{key}");
        }
        for unknown in ["max-pots", "max-pods.x", "labels.", "", "labelsx", "images.pinned.0"] {
            assert!(path(unknown).unwrap_err().contains("has no key"), "{unknown}");
        }
        let section = path("pull").unwrap_err();
        assert!(section.starts_with("pull is a section; set one of pull.bytes-per-second, pull.window"), "{section}");
    }

    #[test]
    fn file_keeps_comments_mode_and_link() {
        let (root, file) = node("# mine\nnode-name: edge-1\nmax-pods: 7  # few\n");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let link = root.path().join("link.yaml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        set(root.path(), &link, "max-pods", "9").unwrap();
        // A label is a text: its digits stay.
        set(root.path(), &link, "labels.rack", "1.10").unwrap();
        let text = "# mine\nnode-name: edge-1\nmax-pods: 9  # few\nlabels:\n  rack: \"1.10\"\n";
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink());
    }

    #[test]
    fn change_waits_for_another_one() {
        let (root, file) = node("node-name: edge-1\nmax-pods: 7\n");
        let lock = config_lock::take(&file).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| set(root.path(), &file, "labels.rack", "r1"));
            std::thread::sleep(std::time::Duration::from_millis(200));
            fs::write(&file, "node-name: edge-1\nmax-pods: 9\n").unwrap();
            drop(lock);
            second.join().unwrap().unwrap();
        });
        assert_eq!(fs::read_to_string(&file).unwrap(), "node-name: edge-1\nmax-pods: 9\nlabels:\n  rack: r1\n");
    }

    #[test]
    fn file_that_no_node_would_run_with_is_not_written() {
        let (root, file) = node("node-name: edge-1\nmax-pods: 7\n");
        for (key, value, named) in [
            ("max-pods", "many", "max-pods"),
            ("images.pinned", "7", "pinned"),
            ("images.gc-high-percent", "101", "images.gc-high-percent"),
            ("labels.node-role.kubernetes.io/x", "y", "node-role"),
            ("max-pots", "7", "no key max-pots"),
        ] {
            let refused = set(root.path(), &file, key, value);
            assert!(matches!(&refused, Err(CliError::Failed(why)) if why.contains(named)), "{key}: {refused:?}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "node-name: edge-1\nmax-pods: 7\n");
        let missing = root.path().join("missing");
        assert!(set(root.path(), &missing.join("config.yaml"), "max-pods", "many").is_err());
        assert!(!missing.exists(), "no folder is made for a value that is refused");
        let below = file.join("x");
        let refused = set(root.path(), &below, "max-pods", "7");
        assert!(matches!(refused, Err(CliError::Failed(why)) if why.starts_with(below.to_str().unwrap())));
    }

    #[test]
    fn missing_file_is_made_and_wrong_one_can_be_mended() {
        let (root, file) = node("node-name: edge-1\nmax-pods: many\n");
        set(root.path(), &file, "max-pods", "9").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "node-name: edge-1\nmax-pods: 9\n");
        let new = root.path().join("etc/new.yaml");
        set(root.path(), &new, "node-name", "edge-2").unwrap();
        assert_eq!(fs::read_to_string(&new).unwrap(), "node-name: edge-2\n");
        assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o644);
    }
}
