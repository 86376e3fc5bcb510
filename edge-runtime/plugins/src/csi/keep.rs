//! Order: undo the volumes of pods that have gone while the daemon or this process was away. Has no answer: what fails is
//! tried again here, until the daemon names the pods again.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::sleep;

use super::call::on_disk;
use super::disk;
use super::failure::Failure;
use super::paths::Target;
use super::unmount::undo_target;
use crate::shared::Shared;

/// Until what has failed is tried again; doubled each time. The kubelet has the same limits.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_AT_MOST: Duration = Duration::from_secs(122);
/// Name of the search in messages.
const SEARCH: &str = "volumes of CSI drivers";

/// Undoes the volumes of all other pods.
pub(super) fn keep(shared: &Rc<Shared>, pods: Vec<String>) {
    let csi = &shared.csi;
    csi.kept.replace(pods.into_iter().map(|pod| (pod, ())).collect());
    let number = csi.keeps.get() + 1;
    csi.keeps.set(number);
    spawn_local(search(Rc::clone(shared), number));
}

/// Undoes a volume that the search may have missed.
pub(super) fn undo(shared: &Rc<Shared>, target: Target) {
    spawn_local(undo_until_done(Rc::clone(shared), target, shared.csi.keeps.get()));
}

async fn search(shared: Rc<Shared>, number: u64) {
    let mut pause = PAUSE;
    while shared.csi.keeps.get() == number {
        match on_disk(&shared, disk::targets).await {
            Ok(targets) => {
                shared.accepts(SEARCH);
                for target in targets {
                    // One of a driver that hangs holds up no other.
                    spawn_local(undo_until_done(Rc::clone(&shared), target, number));
                }
                return;
            }
            Err(error) => shared.refuses(SEARCH, error),
        }
        wait(&shared, &mut pause).await;
    }
}

async fn undo_until_done(shared: Rc<Shared>, target: Target, number: u64) {
    let what = target.path(&shared.settings.root).display().to_string();
    let mut pause = PAUSE;
    // A pod that was new to the daemon has been named since.
    while shared.csi.keeps.get() == number && !shared.csi.kept.borrow().contains_key(&target.pod) {
        match undo_target(&shared, &target).await {
            Ok(()) => break,
            // Drivers come after the daemon.
            Err(Failure { why, gone: true }) => log::debug!("{what}: {why}"),
            Err(Failure { why, .. }) => shared.refuses(&what, why),
        }
        wait(&shared, &mut pause).await;
    }
    shared.accepts(&what);
}

/// Waits for the next attempt, or for a driver.
async fn wait(shared: &Shared, pause: &mut Duration) {
    tokio::select! {
        () = sleep(*pause) => {}
        () = shared.csi.driver_came.notified() => {}
    }
    *pause = (*pause * 2).min(PAUSE_AT_MOST);
}
