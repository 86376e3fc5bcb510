//! A running program with all that it started.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A program with all its descendants, killed on drop unless it is spared.
pub(super) struct Family(Option<Pid>);

impl Family {
    pub(super) fn of(id: u32) -> Self {
        Self(i32::try_from(id).ok().map(Pid::from_raw))
    }

    pub(super) fn spare(&mut self) {
        self.0 = None;
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group is gone if all processes have ended.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use super::*;

    #[test]
    fn program_that_is_not_spared_is_killed() {
        for (spares, signal) in [(false, Some(Signal::SIGKILL as i32)), (true, Some(Signal::SIGTERM as i32))] {
            let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
            let mut family = Family::of(child.id());
            if spares {
                family.spare();
            }
            drop(family);
            // Comes too late for one that was killed.
            let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
            assert_eq!(child.wait().unwrap().signal(), signal);
        }
    }
}
