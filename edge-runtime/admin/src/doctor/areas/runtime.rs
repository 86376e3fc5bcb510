//! The OCI runtime that starts containers: whether it is there, runs, is safe and can do what pods ask for.

use std::path::{Path, PathBuf};

use edge_runtime::launch::runtimes::Runtimes;
use serde_json::Value;

use crate::doctor::finding::Finding;
use crate::doctor::host::{Host, ask, find};

const CHECK: &str = "oci-runtime";

#[derive(Debug, Default)]
pub(crate) struct Facts {
    runtimes: Vec<Runtime>,
}

#[derive(Debug, Default)]
struct Runtime {
    /// Empty for the default one.
    handler: String,
    command: PathBuf,
    found: bool,
    /// crun is there and can be the default one.
    has_crun: bool,
    /// `runc://1.1.5`; none if it does not run.
    version: Option<String>,
    /// Known to let containers out.
    warning: Option<String>,
    /// `None` if the runtime does not report it.
    seccomp: Option<bool>,
}

pub(crate) fn look(host: &Host) -> Facts {
    let Some(config) = &host.config else { return Facts::default() };
    let commands = |handler: &str| match config.runtimes.get(handler) {
        Some(handler) => handler.program.clone(),
        None => config.runtime.command().to_path_buf(),
    };
    let runtimes = Runtimes::new(config).ask_all().into_iter().map(|(handler, said)| {
        let command = commands(&handler);
        let features = ask(&command, &["features"]).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        Runtime {
            found: find(&command).is_some(),
            has_crun: handler.is_empty() && find(Path::new("crun")).is_some(),
            version: said.version(),
            warning: said.warning(),
            seccomp: features.and_then(|features| features["linux"]["seccomp"]["enabled"].as_bool()),
            handler,
            command,
        }
    });
    Facts { runtimes: runtimes.collect() }
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    facts.runtimes.iter().flat_map(judge_one).collect()
}

fn judge_one(runtime: &Runtime) -> Vec<Finding> {
    let command = runtime.command.display();
    let key =
        if runtime.handler.is_empty() { "runtime.command".to_owned() } else { format!("runtimes.{}", runtime.handler) };
    let install = format!("apt-get install runc (or crun), or name another program as {key} in the configuration");
    let Some(version) = &runtime.version else {
        let (what, cure) = match runtime.found {
            true => ("does not run, or does not say its version", install),
            false if runtime.has_crun => (
                "is not there; crun is, but the configuration does not name it",
                "edge-runtime config set runtime.command crun, then systemctl restart edge-runtime".to_owned(),
            ),
            false => ("is not there", install),
        };
        let what = format!("the OCI runtime {command} {what}");
        return vec![Finding::error(CHECK, what, "no container can be started", cure)];
    };
    let mut found = Vec::new();
    if let Some(warning) = &runtime.warning {
        let why = "a hostile container becomes root of this machine";
        found.push(Finding::warning(
            CHECK,
            warning.clone(),
            why,
            "apt-get update && apt-get install --only-upgrade runc",
        ));
    }
    if runtime.seccomp == Some(false) {
        let what = format!("{command} was built without seccomp");
        let cure = "apt-get install runc, whose package has seccomp";
        found.push(Finding::warning(
            CHECK,
            what,
            "containers may make every system call that their rights allow",
            cure,
        ));
    }
    if found.is_empty() {
        found.push(Finding::ok(CHECK, format!("{command}: {version}")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    fn judged(change: impl Fn(&mut Runtime)) -> Vec<Finding> {
        let mut one = Runtime {
            command: "runc".into(),
            found: true,
            version: Some("runc://1.3.0".into()),
            seccomp: Some(true),
            ..Runtime::default()
        };
        change(&mut one);
        judge(&Facts { runtimes: vec![one] })
    }

    #[test]
    fn missing_broken_and_unsafe_runtimes_are_found() {
        assert_fine(&judged(|_| {}));
        let none = judged(|one| (one.found, one.version) = (false, None));
        assert_found(&none, "oci-runtime", Severity::Error, "apt-get install runc");
        assert!(none[0].what.contains("runc is not there"), "{none:?}");
        let crun = judged(|one| (one.found, one.version, one.has_crun) = (false, None, true));
        assert_found(&crun, "oci-runtime", Severity::Error, "config set runtime.command crun");
        assert_found(&judged(|one| one.version = None), "oci-runtime", Severity::Error, "runtime.command");
        let old = judged(|one| one.warning = Some("runc 1.0 may let a container out".into()));
        assert_found(&old, "oci-runtime", Severity::Warning, "--only-upgrade runc");
        assert_found(&judged(|one| one.seccomp = Some(false)), "oci-runtime", Severity::Warning, "seccomp");
        let other = judged(|one| (one.handler, one.version) = ("kata".into(), None));
        assert_found(&other, "oci-runtime", Severity::Error, "runtimes.kata");
    }
}
