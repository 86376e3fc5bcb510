//! The helper processes that give large volumes to a pod's group, one per volume.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;

use smol::process::{Child, Command};

use crate::paths::Paths;
use crate::sys::program;
use crate::volume::Owning;

/// By the mark that each makes at its end.
#[derive(Default)]
pub(super) struct OwnershipHelpers(BTreeMap<PathBuf, Child>);

impl OwnershipHelpers {
    /// Starts a helper unless one is at it.
    ///
    /// # Errors
    /// No process can be started.
    pub(super) fn own(&mut self, owning: &Owning, paths: &Paths) -> std::io::Result<()> {
        self.0.retain(|_, helper| matches!(helper.try_status(), Ok(None)));
        if self.0.contains_key(&owning.mark) {
            return Ok(());
        }
        log::info!("giving {} to group {} in a helper", owning.path.display(), owning.group);
        let mut helper = Command::from(program::itself("own"));
        helper.arg("--root").arg(paths.root()).arg("--group").arg(owning.group.to_string());
        helper.arg("--mark").arg(&owning.mark).arg(&owning.path).stdin(Stdio::null()).stdout(Stdio::null());
        self.0.insert(owning.mark.clone(), helper.spawn()?);
        Ok(())
    }

    /// Nobody needs them any more.
    pub(super) fn end(&mut self, pod: &std::path::Path) {
        let over: Vec<PathBuf> = self.0.keys().filter(|mark| mark.starts_with(pod)).cloned().collect();
        for mark in over {
            if let Some(mut helper) = self.0.remove(&mark) {
                // It may have ended by itself.
                let _ = helper.kill();
            }
        }
    }
}
