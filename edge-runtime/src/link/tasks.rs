//! Starts the tasks of the link on the executor of the node.

use super::identity::Identity;
use super::tls::Time;
use super::{LinkEvent, LinkHandle, Shared, Wakers, network, pump, renew};
use crate::net::proxy::Proxy;
use crate::paths::Paths;
use crate::sys::tasks::Tasks;
use smol::channel::{self, Sender};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

/// What the link needs for as long as it runs.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    pub identity: Identity,
    /// Certificates are judged by this.
    pub time: Time,
    /// Paths of a renewed identity, and of one from a later join.
    pub paths: Paths,
    /// Where the link writes its [`status`](super::status::LinkStatus); none in tests.
    pub status: Option<PathBuf>,
    /// One without `url` if the link is direct.
    pub proxy: Proxy,
}

/// Starts the link's task on the executor. It ends when the receiver of the events is dropped.
pub fn start(ex: &Tasks, settings: LinkSettings, events: Sender<LinkEvent>) -> LinkHandle {
    let (wake, woken) = channel::bounded(1);
    let (network, network_changes) = channel::bounded(1);
    // A bridge that sends more than was requested loses the rest.
    let (renewal, renewal_news) = channel::bounded(4);
    let LinkSettings { identity, time, paths, status, proxy } = settings;
    let shared = Rc::new(Shared {
        session: RefCell::new(None),
        facts: RefCell::new(None),
        wake,
        identity: RefCell::new(identity),
        config: RefCell::new(None),
        time,
        paths,
        proxy,
        renewal,
    });
    ex.spawn(network::watch(network)).detach();
    let wakers = Wakers { woken, network_changes };
    let renewing = renew::run(Rc::clone(&shared), renewal_news);
    let pumping = pump::run(Rc::clone(&shared), status, events, wakers);
    // The renewal ends with the pump.
    ex.spawn(smol::future::or(pumping, async {
        renewing.await;
        smol::future::pending().await
    }))
    .detach();
    LinkHandle { shared }
}
