//! Flags of one verb that does several things, of which each uses only some of them.

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Flag, Given};

/// Refuses a flag of the verb that `what` does not use: ignored, it would promise something.
///
/// # Errors
/// A flag of `all` is given, and not in `used`.
pub(crate) fn only(given: &Given, all: &[Flag], what: &str, used: &[&str]) -> Result<(), CliError> {
    match all.iter().find(|flag| given.has(flag.long) && !used.contains(&flag.long)) {
        Some(flag) => Err(CliError::Usage(format!("{what} does not take --{}", flag.long))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::find_own;

    #[test]
    fn flag_without_use_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("config.yaml");
        std::fs::write(&file, "node-name: edge-1\n").unwrap();
        let file = file.to_str().unwrap();
        for (words, flag) in [
            (&["images", "ls", "--overwrite"][..], "overwrite"),
            (&["images", "--repair"], "repair"),
            (&["images", "--verify", "-o", "json"], "output"),
            (&["images", "--remove", "a", "--overwrite"], "overwrite"),
            (&["images", "rm", "a", "--dry-run"], "dry-run"),
            (&["images", "check", "--repair", "--dry-run"], "dry-run"),
            (&["images", "prune", "--json"], "json"),
            (&["images", "export", "a", "f", "--yes"], "yes"),
            (&["config", "set", "max-pods", "7", "--config", file, "--json"], "json"),
            (&["config", "check", file, "--config", file], "config"),
            (&["config", "check", "--config", file, "-o", "yaml"], "output"),
            (&["devices", "mappers", "-n", "a"], "namespace"),
            (&["logs", "web", "--all-containers", "-f"], "follow"),
            (&["logs", "web", "--all-containers", "-c", "app"], "container"),
            (&["devices", "-n", "a"], "namespace"),
            (&["doctor", "--bundle", "f", "--all"], "all"),
            (&["join", "token", "--no-start", "--wait", "5m"], "wait"),
            (&["upgrade", "--status", "--trial", "5m"], "trial"),
            (&["upgrade", "--back", "--signature", "f"], "signature"),
            (&["upgrade", "a.tar", "-o", "json"], "output"),
        ] {
            let verb = find_own(words[0]).unwrap();
            let words = words[1..].iter().copied().chain(["--root", root.path().to_str().unwrap()]);
            let refused = (verb.run)(verb.parse(lexopt::Parser::from_args(words.clone())).unwrap());
            let wanted = format!("does not take --{flag}");
            assert!(
                matches!(&refused, Err(CliError::Usage(why)) if why.ends_with(&wanted)),
                "{} {:?}: {refused:?}",
                verb.name,
                words.collect::<Vec<_>>()
            );
        }
    }
}
