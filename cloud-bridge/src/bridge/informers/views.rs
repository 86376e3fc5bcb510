//! The groups of a node beyond pods: its devices, and its rules.

use std::sync::Arc;

use tokio::sync::watch;

use super::news::{Subscription, What};
use crate::bridge::followed::known::View;
use crate::bridge::world::{Group, Round};

/// Sends the group of a node until aborted. Skips readings before this round. `_watch` runs as long.
pub(super) async fn tell_views(
    _watch: Arc<impl Send + Sync>,
    mut views: watch::Receiver<View>,
    from: Round,
    to: Subscription,
) {
    let mut said: Option<Arc<Group>> = None;
    loop {
        let view = views.borrow_and_update().clone();
        if let View::Of { round, group } = view
            && round >= from
            && said.as_ref() != Some(&group)
        {
            said = Some(Arc::clone(&group));
            if to.tell(What::Group(Group::clone(&group))).await.is_none() {
                return;
            }
        }
        if views.changed().await.is_err() {
            return;
        }
    }
}
