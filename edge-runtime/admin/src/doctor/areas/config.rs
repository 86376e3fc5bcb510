//! The configuration file: whether the daemon starts with it, and what it leaves out.

use std::path::PathBuf;

use edge_runtime::config::{ConfigError, ConfigFile};

use crate::doctor::finding::Finding;
use crate::doctor::host::Host;

const CHECK: &str = "config";

#[derive(Debug, Default)]
pub(crate) struct Facts {
    file: PathBuf,
    exists: bool,
    /// What keeps the daemon from starting.
    error: Option<String>,
    /// Keys that it does not know, and labels that a node may not have.
    left_out: Vec<String>,
}

pub(crate) fn look(host: &Host) -> Facts {
    let file = host.paths.config_file();
    Facts {
        exists: file.exists(),
        // A key that is not known may hide a value that is wrong.
        error: host.config_error.as_ref().map(ToString::to_string),
        left_out: match ConfigFile::read(&file) {
            Err(ConfigError::Parse { message, .. }) if host.left_out.is_empty() && host.config_error.is_none() => {
                vec![message]
            }
            _ => host.left_out.clone(),
        },
        file,
    }
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let file = facts.file.display();
    let mut found = Vec::new();
    if let Some(error) = &facts.error {
        let cure = format!("correct it in {file}; what is in force: edge-runtime run --print-config");
        found.push(Finding::error(CHECK, error.clone(), "the daemon does not start", cure));
    }
    for left_out in &facts.left_out {
        let cure =
            format!("correct it in {file}, or remove it; keys are told in edge-runtime.yaml(5) and docs/install.md");
        found.push(Finding::warning(CHECK, left_out.clone(), "the daemon runs without it", cure));
    }
    if found.is_empty() {
        let what = if facts.exists { format!("{file} is right") } else { format!("no {file}: defaults are in force") };
        found.push(Finding::ok(CHECK, what));
    }
    found
}

#[cfg(test)]
mod tests {
    use edge_runtime::paths::Paths;

    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    fn judged(text: &str) -> Vec<Finding> {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        std::fs::create_dir_all(paths.config()).unwrap();
        std::fs::write(paths.config_file(), text).unwrap();
        judge(&look(&Host::new(&paths)))
    }

    #[test]
    fn a_key_or_value_that_is_wrong_is_named() {
        assert_fine(&judged("max-pods: 7\n"));
        let wrong = judged("max-pods: many\n");
        assert_found(&wrong, "config", Severity::Error, "config.yaml");
        assert!(wrong[0].what.contains("max-pods"), "{wrong:?}");
        let value = judged("metrics: {listen: everywhere}\n");
        assert!(value[0].what.contains("metrics.listen") && value[0].severity == Severity::Error, "{value:?}");
        let unknown = judged("max-pods: 7\nmax-podz: 8\n");
        assert_found(&unknown, "config", Severity::Warning, "config.yaml");
        assert!(unknown[0].what.contains("max-podz"), "{unknown:?}");
        let label = judged("labels: {node-role.kubernetes.io/worker: ''}\n");
        assert_found(&label, "config", Severity::Warning, "config.yaml");
        assert!(label[0].what.contains("node-role.kubernetes.io/worker"), "{label:?}");
        assert_found(&judged("a: [\n"), "config", Severity::Error, "--print-config");
    }

    #[test]
    fn missing_file_counts_as_empty() {
        let root = tempfile::tempdir().unwrap();
        assert_fine(&judge(&look(&Host::new(&Paths::new(root.path())))));
    }
}
