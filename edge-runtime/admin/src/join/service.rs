//! The daemon as a service of this machine: which init system has it, and how to start it. Does not know the node.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sampan_sys::program;

/// An init system answers at once; a small board under load does not.
const PATIENCE: Duration = Duration::from_secs(60);
const OUTPUT: usize = 64 << 10;

/// What starts the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Systemd,
    OpenRc,
    /// A script in `/etc/init.d`: Debian's sysvinit, busybox.
    Script,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    #[error("{command}: {source}")]
    Run { command: String, source: std::io::Error },
    #[error("{command}: {said}")]
    Failed { command: String, said: String },
}

impl Service {
    /// Returns the init system that runs here and has the daemon; `None` if the daemon is not installed.
    pub(crate) fn find(root: &Path) -> Option<Self> {
        let has = |path: &str| root.join(path).exists();
        // sd_booted(3).
        if has("run/systemd/system") {
            let folders = ["etc", "usr/local/lib", "usr/lib", "lib"];
            let unit = |folder: &&str| has(&format!("{folder}/systemd/system/edge-runtime.service"));
            return folders.iter().any(unit).then_some(Self::Systemd);
        }
        if !has("etc/init.d/edge-runtime") {
            return None;
        }
        Some(if has("sbin/openrc-run") || has("usr/sbin/openrc-run") { Self::OpenRc } else { Self::Script })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Systemd => "edge-runtime.service",
            Self::OpenRc | Self::Script => "/etc/init.d/edge-runtime",
        }
    }

    /// Enables the service and starts it, without waiting until it is up. `again`: restarts a running one.
    pub(crate) fn enable_and_start(self, again: bool) -> Result<(), ServiceError> {
        let (enable, start) = self.commands(again);
        if self != Self::Script || Path::new("/usr/sbin/update-rc.d").exists() {
            run(enable)?;
        }
        run(start)
    }

    fn commands(self, again: bool) -> (&'static [&'static str], &'static [&'static str]) {
        match (self, again) {
            // A first boot does not wait for the node: it has nothing to do then but to end.
            (Self::Systemd, false) => (
                &["systemctl", "enable", "edge-runtime.service"],
                &["systemctl", "start", "--no-block", "edge-runtime.service"],
            ),
            (Self::Systemd, true) => (
                &["systemctl", "enable", "edge-runtime.service"],
                &["systemctl", "restart", "--no-block", "edge-runtime.service"],
            ),
            (Self::OpenRc, false) => {
                (&["rc-update", "add", "edge-runtime", "default"], &["rc-service", "edge-runtime", "start"])
            }
            (Self::OpenRc, true) => {
                (&["rc-update", "add", "edge-runtime", "default"], &["rc-service", "edge-runtime", "restart"])
            }
            (Self::Script, false) => {
                (&["update-rc.d", "edge-runtime", "defaults"], &["/etc/init.d/edge-runtime", "start"])
            }
            (Self::Script, true) => {
                (&["update-rc.d", "edge-runtime", "defaults"], &["/etc/init.d/edge-runtime", "restart"])
            }
        }
    }
}

fn run(words: &[&str]) -> Result<(), ServiceError> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let name = words.join(" ");
    let done = smol::block_on(program::run(command, &[], OUTPUT, PATIENCE));
    let output = done.map_err(|source| ServiceError::Run { command: name.clone(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ServiceError::Failed { command: name, said: if said.is_empty() { output.status.to_string() } else { said } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_that_of_the_init_system_that_runs() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        assert_eq!(Service::find(root.path()), None);
        make("etc/init.d/edge-runtime");
        assert_eq!(Service::find(root.path()), Some(Service::Script));
        make("sbin/openrc-run");
        assert_eq!(Service::find(root.path()), Some(Service::OpenRc));
        make("run/systemd/system/x");
        assert_eq!(Service::find(root.path()), None, "systemd runs, and has no unit");
        make("lib/systemd/system/edge-runtime.service");
        assert_eq!(Service::find(root.path()), Some(Service::Systemd));
    }

    #[test]
    fn output_of_a_failed_command_is_reported() {
        let error = run(&["sh", "-c", "echo no such unit >&2; exit 4"]).unwrap_err();
        assert!(error.to_string().ends_with("no such unit"), "{error}");
        assert!(run(&["/nowhere/systemctl"]).unwrap_err().to_string().starts_with("/nowhere/systemctl: "));
        run(&["true"]).unwrap();
    }
}
