//! Facts that an OCI runtime reports: its version, its features, and whether this version has a known container escape.
//! Does not know handlers or pods.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::NodeRuntimeHandlerFeatures;
use serde_json::Value;

use crate::sys::from_json::from_json;
use crate::sys::program;

/// Longest that a runtime may think about itself: the node starts without its answer then.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum size of an answer; runc's features are 10 kB.
const ANSWER_LIMIT: usize = 1 << 20;

/// The first runc that lets no container begin in a folder of the host (CVE-2024-21626).
const SAFE: [u32; 3] = [1, 1, 12];

/// The answers of one runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// `runc`, as it calls itself; empty for one that does not run.
    pub name: String,
    version: String,
    /// Source revision: distributions name their package there.
    commit: String,
    /// Can make everything below a mount read-only (mount option `rro`; kernels since 5.12).
    pub recursive_read_only: bool,
}

impl Said {
    /// Asks `program`: once where one answer has everything, as runc's has.
    pub(super) fn by(program: &Path) -> Self {
        let ask = |question: &str| {
            let mut command = Command::new(program);
            command.arg(question);
            program::ask(command, ANSWER_LIMIT, PATIENCE).map(|output| output.stdout).unwrap_or_default()
        };
        let features = ask("features");
        let mut said = Self::of_features(&from_json(&features).unwrap_or_default());
        if said.version.is_empty() {
            said.add_version(&String::from_utf8_lossy(&ask("--version")));
        }
        said
    }

    /// From the answer to `features` (OCI runtime specification, features.md; annotations as runc writes them).
    fn of_features(answer: &Value) -> Self {
        let options = answer["mountOptions"].as_array().into_iter().flatten();
        let note = |name: &str| {
            let text = answer["annotations"][format!("org.opencontainers.runc.{name}")].as_str();
            text.unwrap_or_default().to_owned()
        };
        let version = note("version");
        let name = if version.is_empty() { String::new() } else { "runc".to_owned() };
        let recursive_read_only = options.into_iter().any(|option| option == "rro");
        Self { name, version, commit: note("commit"), recursive_read_only }
    }

    /// From `runc version 1.1.5+ds1` or `crun version 1.8.1`, and the line `commit: 1.1.5+ds1-1+deb12u1` below.
    fn add_version(&mut self, output: &str) {
        let mut words = output.lines().next().unwrap_or_default().split_whitespace();
        let Some(name) = words.next() else { return };
        let Some(version) = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit())) else { return };
        let commit = output.lines().find_map(|line| line.strip_prefix("commit:")).unwrap_or_default();
        (self.name, self.version, self.commit) = (name.to_owned(), version.to_owned(), commit.trim().to_owned());
    }

    /// Version in the Node's status: `runc://1.1.5+ds1`. `None`: it does not run.
    pub fn version(&self) -> Option<String> {
        (!self.name.is_empty()).then(|| format!("{}://{}", self.name, self.version))
    }

    /// Features for `status.runtimeHandlers`. The node itself implements user namespaces, for all runtimes.
    pub fn features(&self, user_namespaces: bool) -> NodeRuntimeHandlerFeatures {
        NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(self.recursive_read_only),
            user_namespaces: Some(user_namespaces),
        }
    }

    /// Warning for the administrator, if any.
    pub fn warning(&self) -> Option<String> {
        let old = self.name == "runc" && numbers(&self.version).is_some_and(|version| version < SAFE);
        (old && !is_patched(&self.commit)).then(|| {
            format!(
                "runc {} is older than 1.1.12 and may let a container out to the host (CVE-2024-21626), unless your \
                 distribution has patched it: upgrade runc",
                self.version
            )
        })
    }
}

/// `1.1.5+ds1` as 1, 1, 5.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let mut next = || parts.next().flatten();
    Some([next()?, next()?, next().unwrap_or_default()])
}

/// Debian's security updates keep the version: 12 has the patch from its first one on, 11 from its third on
/// (security-tracker.debian.org).
fn is_patched(commit: &str) -> bool {
    let update = |mark: &str| commit.split_once(mark).and_then(|(_, number)| number.parse::<u32>().ok());
    update("+deb12u").is_some_and(|number| number >= 1) || update("+deb11u").is_some_and(|number| number >= 3)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(output: &str) -> Said {
        let mut said = Said::default();
        said.add_version(output);
        said
    }

    #[test]
    fn outputs_of_runtimes_are_parsed() {
        let runc = Said::of_features(&json!({
            "mountOptions": ["ro", "rro"],
            "annotations": {"org.opencontainers.runc.version": "1.2.4", "org.opencontainers.runc.commit": "abc"},
        }));
        assert_eq!(runc.version().as_deref(), Some("runc://1.2.4"));
        assert_eq!(runc.features(true).recursive_read_only_mounts, Some(true));
        assert_eq!(runc.features(true).user_namespaces, Some(true));
        let none = Said::of_features(&Value::Null);
        assert_eq!((none.version(), none.recursive_read_only, none.warning()), (None, false, None));
        assert_eq!(said("runc version 1.1.5+ds1\nspec: 1\n").version().as_deref(), Some("runc://1.1.5+ds1"));
        assert_eq!(said("youki version: 0.5.1\n").version().as_deref(), Some("youki://0.5.1"));
        assert_eq!(said("").version(), None);
        assert_eq!(Said::by(Path::new("/nowhere/runc")), Said::default());
    }

    #[test]
    fn an_old_runc_is_told() {
        let warns = |output: &str| said(output).warning().is_some();
        for old in ["runc version 1.1.11", "runc version 1.0.0~rc93+ds1\ncommit: 1.0.0~rc93+ds1-5+deb11u2", "runc 1.0"]
        {
            assert!(warns(old), "{old}");
        }
        assert!(warns("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1\n"));
        for good in [
            "runc version 1.1.12",
            "runc version 1.2.0-rc.1",
            "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\n",
            "runc version 1.0.0~rc93+ds1\ncommit: 1.0.0~rc93+ds1-5+deb11u5",
            "crun version 1.8.1",
            "youki version: 0.5.1",
        ] {
            assert!(!warns(good), "{good}");
        }
    }

    #[test]
    fn this_machines_runtime_is_asked_once() {
        let temp = tempfile::tempdir().unwrap();
        let (program, log) = (temp.path().join("runc"), temp.path().join("log"));
        let answer = r#"{"annotations":{"org.opencontainers.runc.version":"1.1.11"}}"#;
        let script = format!("#!/bin/sh\necho \"$1\" >>{}\necho '{answer}'\n", log.display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let said = Said::by(&program);
        assert!(said.warning().is_some_and(|text| text.starts_with("runc 1.1.11 is older")), "{said:?}");
        assert_eq!(std::fs::read_to_string(log).unwrap(), "features\n");
    }
}
