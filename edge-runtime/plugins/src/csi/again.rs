//! Drivers with `requiresRepublish` get new tokens and secrets from time to time: the daemon is asked for them.

use std::rc::Rc;
use std::time::{Duration, Instant};

use sampan_plugins_control::FromHelper;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::shared::Shared;

/// Between two looks at what is due.
const LOOK: Duration = Duration::from_secs(10);

/// Asks for as long as there is such a volume. Started with each of them; one is enough.
pub(super) fn start(shared: &Rc<Shared>) {
    if shared.csi.asks_again.replace(true) {
        return;
    }
    let shared = Rc::clone(shared);
    spawn_local(async move {
        while shared.csi.mounts.borrow().has_republished() {
            sleep(LOOK).await;
            let due = shared.csi.mounts.borrow_mut().due(Instant::now());
            for (pod, volume) in due {
                shared.tell(&FromHelper::Again { pod, volume });
            }
        }
        shared.csi.asks_again.set(false);
    });
}
