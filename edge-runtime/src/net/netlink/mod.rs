//! Rtnetlink over a plain socket: just the messages a bridge network needs, written by hand.
//!
//! The general netlink crates carry every message of the kernel; the dozen attributes used here are a few hundred
//! bytes of code. All calls are synchronous: the kernel answers within the `send`. Knows nothing of pods.

pub mod address;
pub mod conntrack;
pub mod iptables;
pub mod link;
pub mod message;
pub mod nftables;
pub mod qdisc;
pub mod route;
pub mod socket;

pub use socket::Socket;
