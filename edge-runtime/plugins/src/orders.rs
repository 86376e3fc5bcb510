//! Lines of the daemon: orders are carried out beside each other.

use std::rc::Rc;

use sampan_plugins_control::{FromHelper, ToHelper};
use tokio::task::spawn_local;

use crate::csi;
use crate::device_plugins::{allocate, pre_start};
use crate::shared::Shared;

/// Orders at once.
const MAX_ORDERS: usize = 256;
/// Longest reason of a failure, characters: it becomes the message of an event, and repeats what a plugin has sent.
const MAX_REASON: usize = 1_024;

/// A line of the daemon.
pub(crate) fn told(shared: &Rc<Shared>, line: ToHelper) {
    match line {
        ToHelper::Allocate { id, resource, pod, container, had, free, count } => {
            let order = allocate::Order { resource, had, free, count, who: format!("{pod}, {container}") };
            let here = Rc::clone(shared);
            carry_out(shared, id, async move { allocate::allocate(&here, id, order).await });
        }
        ToHelper::PreStart { id, resource, ids } => {
            let here = Rc::clone(shared);
            carry_out(shared, id, async move { pre_start::pre_start(&here, id, &resource, &ids).await });
        }
        ToHelper::Resources { id, resources } => shared.answered(id, resources),
        line @ (ToHelper::Mount { .. } | ToHelper::Unmount { .. } | ToHelper::Keep { .. }) => csi::told(shared, line),
        ToHelper::Daemon { .. } | ToHelper::Ping {} | ToHelper::End {} => {}
    }
}

/// Sends the answer to an order when it is there.
fn carry_out(shared: &Rc<Shared>, id: u64, order: impl Future<Output = FromHelper> + 'static) {
    if shared.orders.get() >= MAX_ORDERS {
        let why = format!("more than {MAX_ORDERS} orders at once");
        // Worth another attempt: no plugin has refused it.
        return shared.tell(&FromHelper::Failed { id, why, gone: true });
    }
    shared.orders.set(shared.orders.get() + 1);
    let (shared, connection) = (Rc::clone(shared), shared.connection());
    spawn_local(async move {
        let mut answer = order.await;
        shared.orders.set(shared.orders.get().saturating_sub(1));
        match &mut answer {
            FromHelper::Allocated { .. } => shared.count(|counters| counters.allocated += 1),
            FromHelper::Failed { why, .. } => {
                *why = why.chars().take(MAX_REASON).collect();
                shared.count(|counters| counters.failed += 1);
            }
            _ => {}
        }
        // Another daemon has other numbers.
        if shared.connection() == connection {
            shared.tell(&answer);
        }
    });
}
