//! Queries of nft rules, without the `nft` program, and events of their changes (linux/netfilter/nf_tables.h).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt, socket, sockopt,
};
use smol::Async;

use super::Socket;
use super::message::{Request, attributes, text};

/// `NFNL_SUBSYS_NFTABLES << 8`, and in it `NFT_MSG_GETTABLE`, `NFT_MSG_GETCHAIN` and `NFT_MSG_GETGEN`.
const GET_TABLE: u16 = 0x0a01;
const GET_CHAIN: u16 = 0x0a04;
const GET_GENERATION: u16 = 0x0a10;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_GEN_ID: u16 = 1;
/// Bytes of `struct nfgenmsg`: family, version, a number of no use here.
const NFGENMSG: usize = 4;
/// The group `NFNLGRP_NFTABLES`, as a bit.
const GROUP: u32 = 1 << 6;
/// Unread events may be lost: it suffices to know that there was one.
const BUFFER: usize = 4096;
/// Messages read at once: another program may change rules endlessly.
const BATCH: usize = 64;

fn fixed(v6: bool) -> [u8; NFGENMSG] {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    [u8::try_from(family).unwrap_or_default(), 0, 0, 0]
}

/// The generation of the rules: every change by any program increases it.
///
/// # Errors
/// The kernel has no nftables.
pub fn generation(socket: &mut Socket) -> io::Result<u32> {
    let mut found = None;
    socket.query(Request::new(GET_GENERATION, 0, &[0; NFGENMSG]), |body| {
        let all = attributes(body.get(NFGENMSG..).unwrap_or_default());
        let id = all.filter(|(kind, _)| *kind == NFTA_GEN_ID).find_map(|(_, id)| <[u8; 4]>::try_from(id).ok());
        found = found.or(id.map(u32::from_be_bytes));
    })?;
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADMSG))
}

/// Whether there is such a table.
///
/// # Errors
/// The kernel has no nftables.
pub fn has_table(socket: &mut Socket, v6: bool, name: &str) -> io::Result<bool> {
    exists(socket, Request::new(GET_TABLE, 0, &fixed(v6)).text(NFTA_TABLE_NAME, name))
}

/// Whether there is such a table in any family.
///
/// # Errors
/// The kernel has no nftables.
pub fn has_table_of_any_family(socket: &mut Socket, name: &str) -> io::Result<bool> {
    let mut found = false;
    socket.query(Request::new(GET_TABLE, libc::NLM_F_DUMP, &[0; NFGENMSG]), |body| {
        let mut all = attributes(body.get(NFGENMSG..).unwrap_or_default());
        found |= all.any(|(kind, payload)| kind == NFTA_TABLE_NAME && text(payload) == name);
    })?;
    Ok(found)
}

/// Whether there is such a chain.
///
/// # Errors
/// The kernel has no nftables.
pub fn has_chain(socket: &mut Socket, v6: bool, table: &str, name: &str) -> io::Result<bool> {
    let request = Request::new(GET_CHAIN, 0, &fixed(v6)).text(NFTA_CHAIN_TABLE, table).text(NFTA_CHAIN_NAME, name);
    exists(socket, request)
}

fn exists(socket: &mut Socket, request: Request) -> io::Result<bool> {
    match socket.query(request, |_| {}) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        result => result.map(|()| true),
    }
}

/// News of all changes of nft rules in the network namespace in which it was opened. Nothing is asked while nothing changes.
#[derive(Debug)]
pub struct Changes(Async<OwnedFd>);

impl Changes {
    /// # Errors
    /// The kernel has no nftables, or does not tell.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkNetFilter)?;
        setsockopt(&fd, sockopt::RcvBuf, &BUFFER)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, GROUP))?;
        Ok(Self(Async::new(fd)?))
    }

    /// Waits for a change; several changes count as one.
    ///
    /// # Errors
    /// The descriptor fails.
    pub async fn changed(&self) -> io::Result<()> {
        self.0.readable().await?;
        let mut buffer = [0; 64];
        for _ in 0..BATCH {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
                // Some were lost.
                Ok(_) | Err(nix::Error::ENOBUFS | nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::namespaces::tests::isolate;
    use std::time::Duration;

    fn nft(script: &str) {
        assert!(std::process::Command::new("nft").arg(script).status().unwrap().success(), "{script}");
    }

    fn told(changes: &Changes, patience: Duration) -> bool {
        smol::block_on(smol::future::or(async { changes.changed().await.is_ok() }, async {
            smol::Timer::after(patience).await;
            false
        }))
    }

    #[test]
    fn tables_chains_and_changes_are_seen() {
        if !isolate() {
            return;
        }
        let mut socket = Socket::open_netfilter().unwrap();
        let changes = Changes::open().unwrap();
        assert!(!told(&changes, Duration::from_millis(50)), "nothing has changed");
        let before = generation(&mut socket).unwrap();
        nft("add table ip a; add chain ip a one");
        assert!(told(&changes, Duration::from_secs(5)));
        assert!(!told(&changes, Duration::from_millis(50)), "all was taken");
        assert_ne!(generation(&mut socket).unwrap(), before);
        assert_eq!(generation(&mut socket).unwrap(), generation(&mut socket).unwrap());
        assert!(has_table(&mut socket, false, "a").unwrap() && !has_table(&mut socket, true, "a").unwrap());
        let mut anywhere = |name| has_table_of_any_family(&mut socket, name).unwrap();
        nft("add table ip6 b");
        assert!(anywhere("a") && anywhere("b") && !anywhere("c"));
        assert!(has_chain(&mut socket, false, "a", "one").unwrap());
        assert!(!has_chain(&mut socket, false, "a", "two").unwrap());
        assert!(!has_chain(&mut socket, false, "b", "one").unwrap());
        // More than the socket holds.
        let many: String = (0..2000).map(|index| format!("add chain ip a c{index};")).collect();
        nft(&many);
        nft("flush ruleset");
        assert!(told(&changes, Duration::from_secs(5)));
        assert!(!has_table(&mut socket, false, "a").unwrap());
    }
}
