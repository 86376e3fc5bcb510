//! What a node is told of its devices.

use std::sync::Arc;

use edge_protocol::message::ObjectKey;
use tokio::sync::mpsc;

use super::object::{News, What};
use crate::bridge::devices::known::View;
use crate::bridge::devices::watch::DeviceWatch;
use crate::bridge::world::Group;

/// Tells of the group of a node, whose name is the key's, until aborted. What was read before this round is not told.
pub(super) async fn tell_device_views(
    devices: Arc<DeviceWatch>,
    from: u64,
    key: ObjectKey,
    watch: u64,
    news: mpsc::Sender<News>,
) {
    let mut views = devices.of_node(&key.name);
    let mut said: Option<Arc<Group>> = None;
    loop {
        let view = views.borrow_and_update().clone();
        if let View::Of { round, group } = view
            && round >= from
            && said.as_ref() != Some(&group)
        {
            said = Some(Arc::clone(&group));
            let what = What::Group(Group::clone(&group));
            if news.send(News { key: key.clone(), watch, what }).await.is_err() {
                return;
            }
        }
        if views.changed().await.is_err() {
            return;
        }
    }
}
