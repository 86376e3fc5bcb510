//! What a node is told of what is behind it: its devices, the rules that concern it.

use std::sync::Arc;

use edge_protocol::message::ObjectKey;
use tokio::sync::{mpsc, watch};

use super::object::{News, What};
use crate::bridge::followed::known::View;
use crate::bridge::world::Group;

/// Tells of the group of a node until aborted. What was read before this round is not told. `_watch` goes on for as long.
pub(super) async fn tell_views(
    _watch: Arc<impl Send + Sync>,
    mut views: watch::Receiver<View>,
    from: u64,
    key: ObjectKey,
    watch: u64,
    news: mpsc::Sender<News>,
) {
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
