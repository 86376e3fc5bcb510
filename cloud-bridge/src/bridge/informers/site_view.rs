//! The view of a site that its nodes receive.

use std::time::Duration;

use edge_protocol::message::ObjectDigest;
use tokio::sync::watch;

use super::news::{Subscription, What};
use crate::bridge::sites::Sites;

/// Minimum interval between updates to nodes: several boards often reconnect together.
const PAUSE: Duration = Duration::from_millis(500);

/// Sends the view of a site until aborted; the key has its name.
pub(super) async fn tell_site(mut sites: watch::Receiver<Sites>, to: Subscription) {
    let mut said: Option<ObjectDigest> = None;
    loop {
        // Before every node has been read, the view would remove routes.
        let view = {
            let sites = sites.borrow_and_update();
            sites.listed.then(|| sites.view(&to.key.name))
        };
        if let Some(view) = view.filter(|view| said.as_ref() != Some(&view.digest)) {
            said = Some(view.digest.clone());
            if to.tell(What::Present(view)).await.is_none() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        if sites.changed().await.is_err() {
            return;
        }
    }
}
