//! Order: a container is about to start.

use std::rc::Rc;
use std::time::Duration;

use sampan_plugins_control::FromHelper;

use super::allocate::{Failure, not_connected};
use crate::messages::device_plugin::{PRE_START, pre_start_request};
use crate::shared::Shared;

/// Timeout for the call: a plugin may load firmware. The kubelet has the same (`KubeletPreStartContainerRPCTimeoutInSecs`).
const DEADLINE: Duration = Duration::from_secs(30);

/// What became of it.
pub(crate) async fn pre_start(shared: &Rc<Shared>, id: u64, resource: &str, ids: &[String]) -> FromHelper {
    let Some((number, connected)) = shared.plugins.borrow().connection(resource) else {
        return not_connected(id, resource);
    };
    // A plugin that was replaced by another version may not want it any more.
    if !connected.options.pre_start {
        return FromHelper::Prepared { id };
    }
    let called = connected.client.lock().await.call(PRE_START, &pre_start_request(ids), DEADLINE).await;
    match called {
        Ok(_) => FromHelper::Prepared { id },
        Err(status) => Failure::Status(status).answer(shared, id, resource, number).await,
    }
}
