//! The view of a site that its nodes receive.

use edge_protocol::message::{ObjectDigest, ObjectKey};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

use super::object::{News, What};
use crate::bridge::sites::Sites;

/// Minimum interval between updates to nodes: several boards often reconnect together.
const PAUSE: Duration = Duration::from_millis(500);

/// Sends the view of a site until aborted; the key has its name.
pub(super) async fn tell_site(mut sites: watch::Receiver<Sites>, key: ObjectKey, watch: u64, news: mpsc::Sender<News>) {
    let mut said: Option<ObjectDigest> = None;
    loop {
        // Before every node has been read, the view would remove routes.
        let view = {
            let sites = sites.borrow_and_update();
            sites.listed.then(|| sites.view(&key.name))
        };
        if let Some(view) = view.filter(|view| said.as_ref() != Some(&view.digest)) {
            said = Some(view.digest.clone());
            if news.send(News { key: key.clone(), watch, what: What::Present(view) }).await.is_err() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        if sites.changed().await.is_err() {
            return;
        }
    }
}
