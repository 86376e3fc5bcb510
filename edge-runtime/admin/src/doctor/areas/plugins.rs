//! Device plugins, where they are configured: whether the helper runs, and whether plugins find it.

use std::path::PathBuf;

use sampan_sys::{helper, socket};
use smol::Async;

use crate::doctor::finding::Finding;
use crate::doctor::host::Host;

/// Check of all findings here.
const CHECK: &str = "plugins";
const WHY: &str = "pods that need devices of plugins do not start";

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    is_on: bool,
    /// The helper takes connections.
    runs: bool,
    /// Socket of plugins at which another process listens.
    taken: Option<PathBuf>,
}

pub(crate) fn look(host: &Host) -> Facts {
    let config = host.config.as_ref().map(|config| &config.plugins).filter(|plugins| plugins.is_on());
    let Some(config) = config else { return Facts::default() };
    let process = |path: PathBuf| {
        let stream = socket::connect(&path).and_then(Async::new).ok()?;
        Some((helper::pid_of(&stream), path))
    };
    let own = process(host.paths.plugins_socket()).map(|(pid, _)| pid);
    let folders = [(config.device_plugins, "device-plugins"), (config.pod_resources, "pod-resources")];
    let mut sockets = folders
        .into_iter()
        .filter(|(is_on, _)| *is_on)
        .filter_map(|(_, folder)| process(config.root.join(folder).join("kubelet.sock")));
    let taken = sockets.find(|(pid, _)| Some(*pid) != own).map(|(_, path)| path);
    Facts { is_on: true, runs: own.is_some(), taken }
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if !facts.is_on {
        return found;
    }
    if let Some(path) = &facts.taken {
        let what = format!("another process, perhaps a kubelet, listens at {}", path.display());
        let cure =
            format!("see which: ss -xlp | grep {}; stop it, or set plugins.root to another folder", path.display());
        found.push(Finding::error(CHECK, what, WHY, cure));
    }
    match facts.runs {
        true => found.push(Finding::ok(CHECK, "edge-plugins runs")),
        false => {
            let cure = "see why in the log: journalctl -u edge-runtime | grep edge-plugins; the program is installed beside \
                        edge-runtime";
            found.push(Finding::error(CHECK, "edge-plugins does not run", WHY, cure));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    #[test]
    fn missing_helper_and_taken_socket_are_found() {
        let well = Facts { is_on: true, runs: true, taken: None };
        assert_fine(&judge(&well));
        let absent = judge(&Facts { runs: false, ..well.clone() });
        assert_found(&absent, "plugins", Severity::Error, "grep edge-plugins");
        let taken = judge(&Facts { taken: Some("/var/lib/kubelet/device-plugins/kubelet.sock".into()), ..well });
        assert_found(&taken, "plugins", Severity::Error, "set plugins.root");
    }

    #[test]
    fn node_without_plugins_is_not_examined() {
        assert!(judge(&Facts::default()).is_empty());
    }
}
