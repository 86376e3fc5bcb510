//! Notices that the way to the bridge has changed: another uplink, another address, the cable back in.
//!
//! The kernel tells of every change of links, addresses and routes, most of which are pods coming and going. What
//! counts is only how it would reach the bridge now: by which link, from which address, and whether that link has a
//! carrier. While that stays the same nothing happens. Knows nothing of connections.

use super::Wakers;
use crate::net::netlink::{Socket, address, link};
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};
use smol::channel::Sender;
use smol::{Async, Timer};
use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Changes arrive in bursts (link up, carrier, address, route). After the first one it waits for the others this long.
const SETTLE: Duration = Duration::from_millis(200);

/// What the kernel is asked to tell (rtnetlink(7), `RTMGRP_*`).
const GROUPS: [libc::c_int; 5] = [
    libc::RTMGRP_LINK,
    libc::RTMGRP_IPV4_IFADDR,
    libc::RTMGRP_IPV4_ROUTE,
    libc::RTMGRP_IPV6_IFADDR,
    libc::RTMGRP_IPV6_ROUTE,
];

/// Passes the kernel's notifications on to the link's task, forever. Without them the link recovers as well, by its
/// heartbeats and its back-off.
pub(super) async fn watch(changed: Sender<()>) {
    if let Err(error) = follow(&changed).await {
        log::warn!("changes of the network are not noticed: {error}");
    }
}

async fn follow(changed: &Sender<()>) -> io::Result<()> {
    let fd = Async::new(open()?)?;
    while !changed.is_closed() {
        fd.readable().await?;
        Timer::after(SETTLE).await;
        drain(fd.get_ref())?;
        // Full means that one is pending already.
        let _ = changed.try_send(());
    }
    Ok(())
}

fn open() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    let groups = GROUPS.into_iter().fold(0, |all, group| all | group.unsigned_abs());
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(fd)
}

/// Throws the messages away: what is true now is asked for, not pieced together.
fn drain(fd: &OwnedFd) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            // ENOBUFS: notifications were lost, which does not matter here.
            Ok(_) | Err(nix::Error::ENOBUFS | nix::Error::EINTR) => {}
            Err(nix::Error::EAGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// How the kernel would reach the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The address it would send from.
    pub(super) source: Option<IpAddr>,
    link: Option<u32>,
}

/// The way to a host as the kernel knows it now; `None` without a route, or while its link has no carrier.
fn way_to(peer: Option<IpAddr>) -> Option<Way> {
    let mut socket = Socket::open().ok()?;
    let targets = peer.map_or_else(|| address::FAR.to_vec(), |peer| vec![peer]);
    let route = targets.into_iter().find_map(|target| address::route_towards(&mut socket, target).ok().flatten())?;
    let carrier = |index| link::by_index(&mut socket, index).ok().flatten().is_none_or(|link| link.carrier);
    route.link.is_none_or(carrier).then_some(Way { source: route.source, link: route.link })
}

/// The last route of the link, and its changes.
pub(super) struct Network<'a> {
    wakers: &'a Wakers,
    peer: Cell<Option<IpAddr>>,
    last: Cell<Option<Way>>,
}

impl<'a> Network<'a> {
    pub(super) fn new(wakers: &'a Wakers) -> Self {
        Self { wakers, peer: Cell::new(None), last: Cell::new(way_to(None)) }
    }

    /// The bridge has this address, as far as is known.
    pub(super) fn aim(&self, peer: IpAddr) {
        self.peer.set(Some(peer));
        self.last.set(way_to(Some(peer)));
    }

    /// Resolves when a route exists that differs from the last one, or from its absence. May be dropped at any time
    /// without losing a change.
    pub(super) async fn changed(&self) -> Way {
        loop {
            // Never closed: the handle keeps the other end.
            let _ = self.wakers.network_changes.recv().await;
            let now = way_to(self.peer.get());
            if self.last.replace(now) != now
                && let Some(way) = now
            {
                return way;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_way_to_loopback_is_found() {
        let way = way_to(Some(IpAddr::V4(Ipv4Addr::LOCALHOST))).expect("loopback is up");
        assert_eq!(way.source, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert_eq!(way.link, Some(1));
    }
}
