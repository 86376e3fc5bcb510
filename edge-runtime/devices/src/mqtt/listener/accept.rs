//! The socket of the listener: there as soon as the address can be had, and as long as the helper is.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::connection::serve;
use super::shared::Shared;
use crate::bound::bound;

/// Pause when no connection can be accepted, without free descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// Accepts clients forever.
pub(super) async fn accept(address: SocketAddr, shared: Rc<Shared>) {
    let listener = bound(address, "MQTT clients").await;
    let mut place = 0;
    loop {
        shared.room().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                place += 1;
                // It does not run before this is done: all is on one thread.
                let task = tokio::task::spawn_local(serve(stream, place, Rc::clone(&shared)));
                shared.came(place, task.abort_handle());
            }
            Err(error) => {
                log::warn!("no client can be taken: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}
