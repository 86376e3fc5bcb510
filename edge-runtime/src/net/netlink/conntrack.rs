//! Deletes flows of datagrams (linux/netfilter/nfnetlink_conntrack.h). While a client continues to send, the kernel
//! keeps the decision of its first datagram, when the host port had another target or none. Flows of TCP end by
//! themselves.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::libc;

use super::Socket;
use super::message::{Request, attributes};

/// `NFNL_SUBSYS_CTNETLINK << 8`, and in it `IPCTNL_MSG_CT_GET` and `IPCTNL_MSG_CT_DELETE`.
const GET: u16 = 0x0101;
const DELETE: u16 = 0x0102;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
/// Attributes of a tuple: addresses, then what the protocol adds.
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const UDP: u8 = 17;
/// Bytes of `struct nfgenmsg`: family, version, a number of no use here.
const NFGENMSG: usize = 4;
/// Flows that are forgotten at once.
const BATCH: usize = 64;

/// A flow of datagrams: where its sender sends to, and who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub to: SocketAddr,
    pub answered_by: SocketAddr,
}

/// Forgets all flows of UDP that were sent to one of `ports`; how many.
///
/// # Errors
/// The kernel does not tell of its flows (module `nf_conntrack_netlink`).
pub async fn forget_udp(ports: &[u16]) -> io::Result<usize> {
    forget_udp_where(|flow| ports.contains(&flow.to.port())).await
}

/// Deletes the UDP flows for which `stale` is true; returns their number. A table may have hundreds of thousands, so
/// other tasks run between the parts of the kernel's answer. Stale flows of one part are deleted together.
///
/// # Errors
/// The kernel does not tell of its flows (module `nf_conntrack_netlink`).
pub async fn forget_udp_where(stale: impl Fn(Flow) -> bool) -> io::Result<usize> {
    let (mut list, mut delete) = (Socket::open_netfilter()?, Socket::open_netfilter()?);
    let mut forgotten = 0;
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family = u8::try_from(family).unwrap_or_default();
        let mut batch = Vec::new();
        let request = Request::new(GET, libc::NLM_F_DUMP, &[family, 0, 0, 0]);
        list.list(request, |body| {
            let Some((tuple, flow)) = flow(body) else { return Ok(()) };
            if stale(flow) {
                forgotten += 1;
                batch.push(Request::new(DELETE, 0, &[family, 0, 0, 0]).attribute(CTA_TUPLE_ORIG, tuple));
            }
            if batch.len() < BATCH {
                return Ok(());
            }
            forget(&mut delete, std::mem::take(&mut batch))
        })
        .await?;
        forget(&mut delete, batch)?;
    }
    Ok(forgotten)
}

fn forget(socket: &mut Socket, flows: Vec<Request>) -> io::Result<()> {
    if flows.is_empty() {
        return Ok(());
    }
    match socket.request(flows) {
        // Some have ended by themselves.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}

/// A flow of UDP, and the tuple by which the kernel knows it.
fn flow(body: &[u8]) -> Option<(&[u8], Flow)> {
    let body = body.get(NFGENMSG..)?;
    let (original, reply) = (find(body, CTA_TUPLE_ORIG)?, find(body, CTA_TUPLE_REPLY)?);
    let to = end(original, [CTA_IP_V4_DST, CTA_IP_V6_DST], CTA_PROTO_DST_PORT)?;
    let answered_by = end(reply, [CTA_IP_V4_SRC, CTA_IP_V6_SRC], CTA_PROTO_SRC_PORT)?;
    Some((original, Flow { to, answered_by }))
}

/// One end of a tuple of UDP.
fn end(tuple: &[u8], [v4, v6]: [u16; 2], port: u16) -> Option<SocketAddr> {
    let (addresses, transport) = (find(tuple, CTA_TUPLE_IP)?, find(tuple, CTA_TUPLE_PROTO)?);
    if find(transport, CTA_PROTO_NUM)?.first() != Some(&UDP) {
        return None;
    }
    let v4 = || <[u8; 4]>::try_from(find(addresses, v4)?).ok().map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    let v6 = || <[u8; 16]>::try_from(find(addresses, v6)?).ok().map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
    let port = u16::from_be_bytes(find(transport, port)?.get(..2)?.try_into().ok()?);
    Some(SocketAddr::new(v4().or_else(v6)?, port))
}

fn find(body: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(body).find(|(kind, _)| *kind == wanted).map(|(_, payload)| payload)
}
