//! Proxies that the daemon's environment names. Pulls inherit it and use the proxy; the link to the bridge never does.

use crate::doctor::finding::Finding;
use crate::doctor::host::text;

/// Variables that name a proxy, in the order in which a pull looks for them (ureq, `Proxy::try_from_env`).
const PROXIES: [&str; 6] = ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
/// Variables that name hosts which are reached without one.
const EXCEPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The variables that have a value. The values may contain logins, and are not kept.
    set: Vec<&'static str>,
}

/// `daemon`: its process id, if it runs.
pub(crate) fn look(daemon: Option<i32>) -> Facts {
    let environment = daemon.map(|pid| text(format!("/proc/{pid}/environ"))).unwrap_or_default();
    Facts { set: set(&environment) }
}

/// The variables of a proxy in `NAME=VALUE` that end with NUL each (proc_pid_environ(5)).
fn set(environment: &str) -> Vec<&'static str> {
    let pairs = || environment.split('\0').filter_map(|pair| pair.split_once('='));
    let has = |wanted: &str| pairs().any(|(name, value)| name == wanted && !value.is_empty());
    PROXIES.into_iter().chain(EXCEPTIONS).filter(|name| has(name)).collect()
}

pub(crate) fn judge(facts: &Facts) -> Option<Finding> {
    let used = facts.set.iter().find(|name| PROXIES.contains(name))?;
    let what = format!(
        "the daemon's environment has {}: images are pulled through the proxy of {used}; the link to the bridge uses none",
        facts.set.join(", ")
    );
    Some(Finding::info("proxy", what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::assert_found;

    fn judged(environment: &str) -> Option<Finding> {
        judge(&Facts { set: set(environment) })
    }

    #[test]
    fn variables_of_a_proxy_are_named_without_values() {
        let found = judged("PATH=/bin\0no_proxy=.lan\0HTTP_PROXY=http://a:b@c:1\0https_proxy=http://d:2\0");
        assert_found(found.as_slice(), "proxy", Severity::Info, "");
        let what = found.map(|found| found.what).unwrap_or_default();
        assert!(
            what.contains("has https_proxy, HTTP_PROXY, no_proxy:") && what.contains("proxy of https_proxy;"),
            "{what}"
        );
        assert!(!what.contains("//"), "a value: {what}");
    }

    #[test]
    fn environment_without_a_proxy_is_not_mentioned() {
        for environment in ["", "PATH=/bin\0", "HTTPS_PROXY=\0", "NO_PROXY=.lan\0", "MY_HTTP_PROXY=http://c:1\0"] {
            assert_eq!(judged(environment), None, "{environment}");
        }
    }
}
