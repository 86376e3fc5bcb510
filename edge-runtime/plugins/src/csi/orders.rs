//! The daemon's settings and its orders about volumes.

use std::rc::Rc;

use sampan_plugins_control::{FromHelper, ToHelper};
use tokio::task::spawn_local;

use super::keep::keep;
use super::mount::mount;
use super::unmount::unmount;
use crate::folder;
use crate::shared::Shared;

/// Longest reason of a failure, characters: it becomes the message of an event, and repeats what a driver has sent.
const MAX_REASON: usize = 1_024;

/// Makes the folders that manifests of drivers expect to be there. `node`: name of the node, for records.
pub(crate) fn start(shared: &Rc<Shared>, node: &str) {
    shared.csi.node.get_or_init(|| node.to_owned());
    for name in ["plugins", "pods"] {
        let path = shared.settings.root.join(name);
        if let Err(error) = folder::make(&path) {
            shared.refuses(&path.display().to_string(), error);
        }
    }
}

/// An order of the daemon about a volume.
pub(crate) fn told(shared: &Rc<Shared>, line: ToHelper) {
    let here = Rc::clone(shared);
    match line {
        ToHelper::Mount { id, mount: volume } => {
            shared.csi.kept.borrow_mut().insert(volume.pod.uid.clone(), ());
            answer(shared, async move { mount(&here, id, *volume).await });
        }
        ToHelper::Unmount { id, pod, volume } => {
            shared.csi.kept.borrow_mut().remove(&pod);
            answer(shared, async move { unmount(&here, id, &pod, &volume).await });
        }
        ToHelper::Keep { pods } => keep(&here, pods),
        _ => {}
    }
}

/// Sends the answer to an order when it is there. Drivers have limits of orders.
fn answer(shared: &Rc<Shared>, order: impl Future<Output = FromHelper> + 'static) {
    let (shared, connection) = (Rc::clone(shared), shared.connection());
    spawn_local(async move {
        let mut answer = order.await;
        if let FromHelper::Failed { why, .. } = &mut answer {
            *why = why.chars().take(MAX_REASON).collect();
        }
        // Another daemon has other numbers.
        if shared.connection() == connection {
            shared.tell(&answer);
        }
    });
}
