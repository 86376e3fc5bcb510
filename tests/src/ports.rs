//! Ports for programs under test, which are named before the program listens. The kernel gives none of them to another
//! socket meanwhile, and no other test takes them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports from 12,000 to 21,999 in pairs: below the node ports of Services (from 30,000) and those that the kernel gives to
/// connections (`ip_local_port_range`, from 32,768), above the kubelet ports of a bridge.
const FIRST: u32 = 12_000;
const PAIRS: u32 = 5_000;

/// Returns an address on loopback whose port, and the one after it, are free and reserved until this process ends.
///
/// # Panics
/// All ports are taken.
#[must_use]
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // A program that an earlier process has left behind still connects to the ports that it knows.
    let start = std::process::id() % PAIRS;
    let next = || FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % PAIRS * 2;
    let port = (0..PAIRS).filter_map(|_| u16::try_from(next()).ok()).find(|port| reserve(*port));
    (Ipv4Addr::LOCALHOST, port.expect("a free port")).into()
}

/// Reserves a port and the one after it. False: another test has them, or something listens there.
fn reserve(port: u16) -> bool {
    // A socket without a file: it has one owner in a network namespace, as a port has, and ends with it.
    let name = UnixAddress::from_abstract_name(format!("sampan-test-port-{port}")).expect("a short name");
    let Ok(mark) = UnixListener::bind_addr(&name) else { return false };
    let free = [port, port + 1].iter().all(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok());
    if free {
        std::mem::forget(mark);
    }
    free
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn reserved_port_is_given_to_no_other_socket() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_address().port()).collect();
        assert_eq!(ports.len(), 100);
        assert!(ports.iter().all(|port| port % 2 == 0), "the next port belongs to each");
        assert!(ports.iter().all(|port| !reserve(*port)), "another process asks for it");
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("Linux");
        let lowest: u16 = range.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number");
        assert!(ports.last().is_some_and(|port| *port < lowest), "the kernel gives ports from {lowest}: {ports:?}");

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        assert!(!reserve(listener.local_addr().expect("an address").port()), "something listens there");
    }
}
