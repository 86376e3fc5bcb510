//! Whether there is a chain in the tables of the old iptables (linux/netfilter_ipv4/ip_tables.h). Those of `iptables-nft` are
//! nft's. Asks no kernel that has no such table: the question alone would load it.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`, the same for IPv6.
const GET_INFO: libc::c_int = 64;
const GET_ENTRIES: libc::c_int = 65;
/// Length of a table's name, in bytes.
const NAME: usize = 32;
/// Bytes of `struct ipt_getinfo`, and where in it the size of all entries is.
const INFO: usize = 84;
const SIZE: usize = 80;
/// Bytes of `struct ipt_get_entries` before the entries, which begin at a multiple of eight.
const ENTRIES: usize = 40;
/// Maximum size of a rule set that is read, in bytes.
const LIMIT: usize = 16 << 20;

/// Whether the table of one family has a chain of this name.
pub fn has_chain(v6: bool, table: &str, chain: &str) -> bool {
    let names = if v6 { "/proc/thread-self/net/ip6_tables_names" } else { "/proc/thread-self/net/ip_tables_names" };
    let there = std::fs::read_to_string(names).is_ok_and(|names| names.lines().any(|name| name == table));
    there && entries(v6, table).is_some_and(|all| names_chain(&all, chain))
}

/// A chain of a user begins with an entry that holds its name, ended by a zero.
fn names_chain(entries: &[u8], chain: &str) -> bool {
    let wanted: Vec<u8> = chain.bytes().chain([0]).collect();
    entries.windows(wanted.len()).any(|part| part == wanted)
}

fn entries(v6: bool, table: &str) -> Option<Vec<u8>> {
    let (family, level) =
        if v6 { (AddressFamily::Inet6, libc::IPPROTO_IPV6) } else { (AddressFamily::Inet, libc::IPPROTO_IP) };
    let fd = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw).ok()?;
    let ask = |option: libc::c_int, answer: &mut [u8]| {
        let name = table.as_bytes();
        answer.get_mut(..name.len().min(NAME - 1))?.copy_from_slice(name.get(..name.len().min(NAME - 1))?);
        let mut length = libc::socklen_t::try_from(answer.len()).ok()?;
        // SAFETY: the kernel reads and writes `length` bytes at most, which `answer` has.
        let done =
            unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, answer.as_mut_ptr().cast(), &raw mut length) };
        (done == 0).then_some(())
    };
    let mut info = [0; INFO];
    ask(GET_INFO, &mut info)?;
    let size = u32::from_ne_bytes(info.get(SIZE..)?.try_into().ok()?);
    let length = usize::try_from(size).ok().filter(|size| *size <= LIMIT)?;
    let mut all = vec![0; ENTRIES + length];
    all.get_mut(NAME..NAME + 4)?.copy_from_slice(&size.to_ne_bytes());
    ask(GET_ENTRIES, &mut all)?;
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::namespaces::tests::isolate;

    #[test]
    fn legacy_iptables_chains_are_found_and_not_created() {
        if !isolate() {
            return;
        }
        let iptables = |args: &[&str]| std::process::Command::new("iptables-legacy").args(args).status();
        assert!(!has_chain(false, "nat", "KUBE-SERVICES"));
        let names = std::fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
        assert_eq!(names, "", "asking has made a table");
        if !iptables(&["-t", "nat", "-N", "KUBE-SERVICES"]).is_ok_and(|status| status.success()) {
            return; // this host has none
        }
        assert!(has_chain(false, "nat", "KUBE-SERVICES") && !has_chain(false, "nat", "KUBE-SERVICE"));
        assert!(!has_chain(true, "nat", "KUBE-SERVICES") && !has_chain(false, "filter", "KUBE-SERVICES"));
        assert!(iptables(&["-t", "nat", "-X", "KUBE-SERVICES"]).unwrap().success());
        assert!(!has_chain(false, "nat", "KUBE-SERVICES"));
    }
}
