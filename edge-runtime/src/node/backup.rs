//! When to copy the store, and when to move a store in memory back to the disk. A copy is made soon after a boot, so
//! that damage of the store loses only later changes. Further copies follow once a day, or an hour after a change from
//! the cloud. An idle node writes the size of its store once a day for that.

use std::process::Stdio;
use std::time::Duration;

use super::context::Context;
use crate::pod::clock::Mono;
use crate::store::StoreError;
use crate::sys::program;

/// After the start, when the pods of a boot are up.
const FIRST: Duration = Duration::from_secs(60);
const AFTER_CHANGES: Duration = Duration::from_secs(3600);
/// Between attempts to put a store in memory on the disk: one may write and wait for a sync.
const RETRY: Duration = Duration::from_secs(60);
/// Retry interval on a read-only file system, where an attempt is cheap.
const RETRY_READ_ONLY: Duration = Duration::from_secs(10);
const PERIOD: Duration = Duration::from_secs(24 * 3600);
/// Below the run folder, which a boot empties: when the last copy was started, in milliseconds since boot.
const MARK: &str = "store-copied";

#[derive(Default)]
pub(super) struct Backup {
    last: Option<Mono>,
    changed: bool,
    first: Option<Mono>,
    retry: Option<Mono>,
}

impl Backup {
    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    fn due(&mut self, now: Mono) -> Mono {
        match self.last {
            None => *self.first.get_or_insert(now.after(FIRST)),
            Some(last) => last.after(if self.changed { AFTER_CHANGES } else { PERIOD }),
        }
    }

    /// A store in memory goes back to the disk as soon as that takes it.
    ///
    /// # Errors
    /// It is there: the node begins again with it.
    pub(super) fn return_to_disk(&mut self, cx: &mut Context, now: Mono) -> Result<(), StoreError> {
        if !cx.store.is_in_memory() || self.retry.is_some_and(|at| now < at) {
            return Ok(());
        }
        match cx.store.put_on_disk() {
            Ok(()) => Err(StoreError::Back { path: cx.paths.store() }),
            Err(error) => {
                let pause = if error.is_read_only() { RETRY_READ_ONLY } else { RETRY };
                self.retry = Some(now.after(pause));
                log::warn!("the store stays in memory: {error}");
                Ok(())
            }
        }
    }

    /// Has the store copied if it is time. The helper ends by itself.
    pub(super) fn copy_store(&mut self, cx: &Context, now: Mono) {
        let mark = cx.paths.run().join(MARK);
        if self.last.is_none() && self.first.is_none() {
            // Written by an earlier daemon.
            let text = std::fs::read_to_string(&mark).unwrap_or_default();
            self.last = text.trim().parse().ok().map(Mono);
        }
        // A store restored from the copy is not better than the copy.
        if now < self.due(now) || cx.recovery.is_under_way() || cx.store.is_in_memory() {
            return;
        }
        (self.last, self.changed) = (Some(now), false);
        let mut helper = smol::process::Command::from(program::itself("copy"));
        helper.arg("--root").arg(cx.paths.root());
        helper.stdin(Stdio::null()).stdout(Stdio::null());
        let started = helper.spawn().map(drop).and_then(|()| std::fs::write(&mark, now.0.to_string()));
        if let Err(error) = started {
            log::warn!("the store is not copied: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_follow_boots_days_and_changes() {
        let mut backup = Backup::default();
        let at = |seconds: u64| Mono::from_duration(Duration::from_secs(seconds));
        assert_eq!(backup.due(at(5)), at(65));
        assert_eq!(backup.due(at(50)), at(65));
        backup.last = Some(at(65));
        assert_eq!(backup.due(at(70)), at(65 + 24 * 3600));
        backup.changed();
        assert_eq!(backup.due(at(70)), at(65 + 3600));
    }

    #[test]
    fn change_before_the_first_copy_does_not_move_it() {
        let mut backup = Backup::default();
        let at = |seconds: u64| Mono::from_duration(Duration::from_secs(seconds));
        assert_eq!(backup.due(at(0)), at(60));
        backup.changed();
        assert_eq!(backup.due(at(59)), at(60));
        backup.last = Some(at(60));
        assert_eq!(backup.due(at(0)), at(60 + 3600), "whatever the time of the look");
    }
}
