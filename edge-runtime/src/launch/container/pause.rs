//! The container that holds a shared pid namespace: this very program as its first process, and next to nothing
//! around it.

use std::io::Read;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::json;

use super::variables::default_path;
use super::{Containers, write_config};
use crate::launch::base::Objects;
use crate::launch::error::ContainerError;
use crate::launch::runtimes::Runtimes;
use crate::launch::sandbox::Sandbox;
use crate::launch::security::apparmor;
use crate::launch::{oci_spec, resources, user_ns};
use crate::pod::pause::PAUSE;
use crate::pod::spec::uid;
use crate::sys::files;
use crate::volume::mounts::Mount;
use sampan_monitor::protocol::StartContainer;

/// Where the program lies in its container.
const PROGRAM: &str = "/pause";

impl Containers {
    /// The steps of one attempt.
    ///
    /// # Errors
    /// A file cannot be written; the removal of the attempt undoes completed steps.
    pub fn prepare_pause(
        &self,
        sandbox: &Sandbox,
        pod: &Pod,
        number: u32,
        id: &str,
        objects: Objects<'_>,
    ) -> Result<StartContainer, ContainerError> {
        let uid = uid(pod);
        let bundle = self.base.paths.bundle(id);
        let root = bundle.join("rootfs");
        files::private_dir(&bundle)?;
        files::open_dir(&root)?;
        if let Some(user) = &sandbox.prepared.namespaces.user {
            user_ns::give(&self.base.paths, &bundle, &root, user)?;
        }
        let handler = self.runtimes.of_prepared(&self.base.paths.pod(uid), pod, objects)?;
        Runtimes::mark(&bundle, &handler, "/")?;
        let container = definition()?;
        let input = oci_spec::Input {
            argv: vec![PROGRAM.to_owned(), "pause".to_owned()],
            env: vec![default_path()],
            mounts: mounts()?,
            oom_score_adj: resources::PAUSE_OOM_SCORE_ADJ,
            // Whatever the pod's containers have: through it they would get rid of their own confinement.
            seccomp: oci_spec::Seccomp::RuntimeDefault,
            apparmor: apparmor::of_pause(self.apparmor),
            ..self.input(sandbox, pod, &container, id, root)
        };
        write_config(&bundle, &input)?;
        log::debug!("attempt {number} of {PAUSE} in pod {uid}");
        Ok(StartContainer {
            // It writes no output, and the log folders are for containers of the pod.
            log_path: bundle.join("0.log"),
            ..self.start(pod, uid, id, &handler)
        })
    }
}

/// Root, so that it may read its program, but without any power.
fn definition() -> Result<Container, serde_json::Error> {
    serde_json::from_value(json!({
        "name": PAUSE,
        "securityContext": {
            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        },
    }))
}

/// The program, and the system's libraries for a build that needs them.
fn mounts() -> std::io::Result<Vec<Mount>> {
    let own = std::env::current_exe()?;
    // So the kernel shows a file that an upgrade has replaced: its successor does as well.
    let path = own.to_string_lossy();
    let own = PathBuf::from(path.strip_suffix(" (deleted)").unwrap_or(&path));
    let mut all = vec![bind(&own, PROGRAM)];
    if needs_libraries(&own) {
        let folders = ["/lib", "/lib64", "/usr/lib"];
        all.extend(folders.iter().map(Path::new).filter(|p| p.is_dir()).map(|p| bind(p, &p.to_string_lossy())));
    }
    Ok(all)
}

fn bind(source: &Path, target: &str) -> Mount {
    let locked = user_ns::locked(source);
    Mount { source: source.to_path_buf(), target: target.into(), read_only: true, locked, ..Mount::default() }
}

/// A dynamically linked program names its loader near its beginning.
fn needs_libraries(program: &Path) -> bool {
    let mut head = Vec::new();
    let read = std::fs::File::open(program).and_then(|file| file.take(4096).read_to_end(&mut head));
    read.is_ok() && head.windows(7).any(|name| name == b"/ld-lin")
}
