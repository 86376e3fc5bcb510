//! A link that leads nowhere, for an address at which pods ask this node for names that network plugins connect: they know
//! no gateway of ours (NodeLocal DNSCache does the like, with the same address).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::libc;

use super::netlink::{Socket, address, link};
use super::{NetError, sysctl};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 20, 10));
/// Address for pods without IPv4, from a unique local prefix of this project (RFC 4193).
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd73, 0x616d, 0x7061, 0x6e00, 0, 0, 0, 0x53));
/// Where pods reach the API, beside the two: [`crate::pod::local_api`].
const API_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 20, 11));
const API_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd73, 0x616d, 0x7061, 0x6e00, 0, 0, 0, 0x64));
/// Kernel limit of a link's name (`IFNAMSIZ` without its zero).
const NAME_LIMIT: usize = 15;

/// Where a pod with these addresses asks.
pub fn address_for(ips: &[IpAddr]) -> IpAddr {
    if is_without_v4(ips) { V6 } else { V4 }
}

/// Where a pod with these addresses reaches the API.
pub fn api_address_for(ips: &[IpAddr]) -> IpAddr {
    if is_without_v4(ips) { API_V6 } else { API_V4 }
}

fn is_without_v4(ips: &[IpAddr]) -> bool {
    !ips.is_empty() && ips.iter().all(IpAddr::is_ipv6)
}

const HARDWARE: [u8; 6] = [0x0a, 0x58, 169, 254, 20, 10];

/// A link of that name which is of another kind is not.
fn is_ours(link: &link::Link) -> bool {
    ["dummy", "bridge"].contains(&link.kind.as_str())
}

/// Each node of a host has a link of its own, named after its bridge.
fn name(bridge: &str) -> String {
    let mut name = format!("dns-{bridge}");
    name.truncate(NAME_LIMIT);
    name
}

/// Makes what is missing; the addresses that are there now.
///
/// # Errors
/// The kernel refuses.
pub fn ensure(bridge: &str) -> Result<Vec<IpAddr>, NetError> {
    ensure_at(bridge, V4, V6)
}

/// Addresses of the local API that [`ensure_api`] makes.
pub fn api_addresses() -> Vec<IpAddr> {
    these(API_V4, API_V6)
}

fn these(v4: IpAddr, v6: IpAddr) -> Vec<IpAddr> {
    if sysctl::without_ipv6().is_some() { vec![v4] } else { vec![v4, v6] }
}

/// Does what [`ensure`] does, for the addresses of the local API.
///
/// # Errors
/// The kernel refuses.
pub fn ensure_api(bridge: &str) -> Result<Vec<IpAddr>, NetError> {
    ensure_at(bridge, API_V4, API_V6)
}

fn ensure_at(bridge: &str, v4: IpAddr, v6: IpAddr) -> Result<Vec<IpAddr>, NetError> {
    let name = name(bridge);
    let failed = |action| {
        let object = format!("link {name}");
        move |source| NetError::Netlink { action, object, source }
    };
    let mut socket = Socket::open().map_err(failed("reach"))?;
    let found = link::by_name(&mut socket, &name).map_err(failed("look up"))?;
    let found = match found {
        Some(found) => found,
        None => {
            let made = link::add_dummy(&mut socket, &name).or_else(|error| match error.raw_os_error() {
                // A bridge that has no ports leads as far, where the kernel has no dummies.
                Some(libc::EOPNOTSUPP) => link::add_bridge(&mut socket, &name, HARDWARE, 1500),
                _ => Err(error),
            });
            made.map_err(failed("make"))?;
            link::named(&mut socket, &name).map_err(failed("find"))?
        }
    };
    if !is_ours(&found) {
        return Err(failed("use")(io::Error::from(io::ErrorKind::AlreadyExists)));
    }
    if !found.up {
        link::set_up(&mut socket, found.index).map_err(failed("set up"))?;
    }
    let addresses = these(v4, v6);
    for address in &addresses {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        address::add(&mut socket, found.index, *address, bits).map_err(failed("set address of"))?;
    }
    Ok(addresses)
}

/// Deletes the link, if it exists.
///
/// # Errors
/// The kernel refuses.
pub fn remove(bridge: &str) -> Result<(), NetError> {
    let name = name(bridge);
    let failed = |source| NetError::Netlink { action: "delete", object: format!("link {name}"), source };
    let mut socket = Socket::open().map_err(failed)?;
    match link::by_name(&mut socket, &name).map_err(failed)? {
        Some(found) if is_ours(&found) => link::delete(&mut socket, &name).map_err(failed),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};

    #[test]
    fn a_pod_asks_where_it_can() {
        let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert_eq!(address_for(&ips(&["10.0.0.2", "fd00::2"])), V4);
        assert_eq!(address_for(&ips(&["fd00::2"])), V6);
        assert_eq!(address_for(&[]), V4);
        assert_eq!(api_address_for(&ips(&["10.0.0.2", "fd00::2"])), API_V4);
        assert_eq!(api_address_for(&ips(&["fd00::2"])), API_V6);
        assert_eq!(api_address_for(&[]), API_V4, "on the node's own network");
    }

    #[test]
    fn s11_the_link_is_made_once_and_taken_away() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        // A thread of its own, whose namespace ends with it.
        let work = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let bridge = "smp-0123456789abcdef";
            assert!(ensure(bridge).unwrap().contains(&V4));
            assert!(ensure(bridge).unwrap().contains(&V4));
            assert!(std::net::UdpSocket::bind((V4, 53)).is_ok());
            assert!(ensure_api(bridge).unwrap().contains(&API_V4));
            assert!(std::net::TcpListener::bind((API_V4, 6443)).is_ok());
            let mut socket = Socket::open().unwrap();
            assert!(is_ours(&link::named(&mut socket, "dns-smp-0123456").unwrap()));
            remove(bridge).unwrap();
            remove(bridge).unwrap();
            assert_eq!(link::by_name(&mut socket, "dns-smp-0123456").unwrap(), None);
        };
        std::thread::spawn(work).join().unwrap();
    }
}
