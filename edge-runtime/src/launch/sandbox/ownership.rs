//! The helper processes that give large volumes to a pod's group, one per volume.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::paths::Paths;
use crate::sys::program;
use crate::sys::vec_map::VecMap;
use crate::volume::Owning;

/// Bytes of a helper's words that are read.
const LONGEST: u64 = 4096;

/// Helpers by the marker file that each creates at its end.
#[derive(Default)]
pub(super) struct OwnershipHelpers {
    helpers: VecMap<PathBuf, Child>,
    /// Killed, and not reaped yet: a process that waits for a dead medium ends late.
    ending: Vec<Child>,
}

impl OwnershipHelpers {
    /// Starts a helper unless one is at it.
    ///
    /// # Errors
    /// A process cannot be started, or the last one failed: its message. The next call tries again.
    pub(super) fn own(&mut self, owning: &Owning, paths: &Paths) -> io::Result<()> {
        self.ending.retain_mut(is_at_work);
        let ended: Vec<PathBuf> =
            self.helpers.iter_mut().filter_map(|(mark, helper)| (!is_at_work(helper)).then(|| mark.clone())).collect();
        for mark in ended {
            if let Some(why) = self.helpers.remove(&mark).and_then(failure).filter(|_| mark == owning.mark) {
                return Err(io::Error::other(why));
            }
        }
        if self.helpers.contains_key(&owning.mark) {
            return Ok(());
        }
        log::info!("giving {} to group {} in a helper", owning.path.display(), owning.group);
        let mut helper: Command = program::itself("own");
        helper.arg("--root").arg(paths.root()).arg("--group").arg(owning.group.to_string());
        helper
            .arg("--mark")
            .arg(&owning.mark)
            .arg(&owning.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        self.helpers.insert(owning.mark.clone(), helper.spawn()?);
        Ok(())
    }

    /// Ends the helpers of a pod, whose result is no longer needed.
    pub(super) fn end(&mut self, pod: &std::path::Path) {
        let over: Vec<PathBuf> = self.helpers.keys().filter(|mark| mark.starts_with(pod)).cloned().collect();
        for mark in over {
            if let Some(mut helper) = self.helpers.remove(&mark) {
                // It may have ended already.
                let _ = helper.kill();
                self.ending.push(helper);
            }
        }
        self.ending.retain_mut(is_at_work);
    }
}

fn is_at_work(helper: &mut Child) -> bool {
    matches!(helper.try_wait(), Ok(None))
}

/// The last line that a helper which has failed said.
fn failure(mut helper: Child) -> Option<String> {
    let status = helper.wait().ok().filter(|status| !status.success())?;
    let mut said = String::new();
    if let Some(pipe) = helper.stderr.take() {
        let _ = pipe.take(LONGEST).read_to_string(&mut said);
    }
    Some(said.trim().lines().last().map_or_else(|| format!("the helper ended with {status}"), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_helper_reports_the_reason() {
        let run = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]).stderr(Stdio::piped());
            failure(command.spawn().unwrap())
        };
        assert_eq!(run("echo warning >&2; echo 'it is too deep' >&2; exit 1").as_deref(), Some("it is too deep"));
        assert!(run("exit 3").unwrap().contains("exit status: 3"));
        assert_eq!(run("echo fine >&2"), None);
    }
}
