//! The HTTP proxy beside what `link` finds on the way through it: who may read its login, and variables of the environment,
//! which name no proxy for this node.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::doctor::finding::Finding;
use crate::doctor::host::{Host, text};

/// Variables that name a proxy for other programs.
const VARIABLES: [&str; 6] = ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    is_configured: bool,
    /// The file with the login, if others than root may read it.
    open: Option<PathBuf>,
    /// The variables that have a value. The values may contain logins, and are not kept.
    set: Vec<&'static str>,
}

/// `daemon`: its process id, if it runs.
pub(crate) fn look(host: &Host, daemon: Option<i32>) -> Facts {
    let environment = daemon.map(|pid| text(format!("/proc/{pid}/environ"))).unwrap_or_default();
    let proxy = host.config.as_ref().map(|config| config.proxy.clone()).unwrap_or_default();
    Facts {
        is_configured: proxy.url.is_some(),
        open: proxy.user_file.filter(|file| is_open(file)),
        set: set(&environment),
    }
}

fn is_open(file: &Path) -> bool {
    let own = [0, nix::unistd::geteuid().as_raw()];
    file.metadata().is_ok_and(|about| about.mode() & 0o077 != 0 || !own.contains(&about.uid()))
}

/// The variables of a proxy in `NAME=VALUE` that end with NUL each (proc_pid_environ(5)).
fn set(environment: &str) -> Vec<&'static str> {
    let pairs = || environment.split('\0').filter_map(|pair| pair.split_once('='));
    let has = |wanted: &str| pairs().any(|(name, value)| name == wanted && !value.is_empty());
    VARIABLES.into_iter().filter(|name| has(name)).collect()
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(file) = &facts.open {
        let file = file.display();
        let (what, cure) = (format!("other users may read {file}"), format!("chown root {file}; chmod 600 {file}"));
        found.push(Finding::warning("proxy", what, "the login at the proxy is theirs, too", cure));
    }
    if !facts.is_configured && !facts.set.is_empty() {
        let set = facts.set.join(", ");
        let what =
            format!("the daemon's environment has {set}, which it ignores: set proxy.url in config.yaml for a proxy");
        found.push(Finding::info("proxy", what));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::assert_found;

    fn judged(environment: &str, is_configured: bool) -> Vec<Finding> {
        judge(&Facts { is_configured, open: None, set: set(environment) })
    }

    #[test]
    fn variables_of_a_proxy_are_named_without_values() {
        let environment = "PATH=/bin\0no_proxy=.lan\0HTTP_PROXY=http://a:b@c:1\0https_proxy=http://d:2\0";
        let found = judged(environment, false);
        assert_found(&found, "proxy", Severity::Info, "");
        let what = &found[0].what;
        assert!(what.contains("has https_proxy, HTTP_PROXY, which it ignores"), "{what}");
        assert!(!what.contains("//"), "a value: {what}");
        assert!(judged(environment, true).is_empty(), "the configuration says what counts");
    }

    #[test]
    fn environment_without_a_proxy_is_not_mentioned() {
        for environment in ["", "PATH=/bin\0", "HTTPS_PROXY=\0", "NO_PROXY=.lan\0", "MY_HTTP_PROXY=http://c:1\0"] {
            assert!(judged(environment, false).is_empty(), "{environment}");
        }
    }

    #[test]
    fn login_that_others_can_read_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.user");
        std::fs::write(&file, "name:hunter22\n").unwrap();
        let found = |mode| {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            judge(&Facts { open: Some(file.clone()).filter(|file| is_open(file)), ..Facts::default() })
        };
        assert_found(&found(0o640), "proxy", Severity::Warning, "chmod 600");
        assert!(found(0o600).is_empty());
        if nix::unistd::geteuid().is_root() {
            chown(&file, Some(1000), None).unwrap();
            assert_found(&found(0o600), "proxy", Severity::Warning, "chown root");
        }
    }
}
