//! Forgetting flows of datagrams (linux/netfilter/nfnetlink_conntrack.h). A client that goes on sending keeps the
//! kernel on the decision made for its first datagram, when the host port led elsewhere or nowhere; flows of TCP end
//! by themselves.

use std::io;

use nix::libc;

use super::Socket;
use super::message::{Request, attributes};

/// `NFNL_SUBSYS_CTNETLINK << 8`, and in it `IPCTNL_MSG_CT_GET` and `IPCTNL_MSG_CT_DELETE`.
const GET: u16 = 0x0101;
const DELETE: u16 = 0x0102;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_DST_PORT: u16 = 3;
/// Bytes of `struct nfgenmsg`: family, version, a number of no use here.
const NFGENMSG: usize = 4;

/// Forgets all flows of UDP that were sent to one of `ports`; how many.
///
/// # Errors
/// The kernel does not tell of its flows (module `nf_conntrack_netlink`).
pub fn forget_udp(ports: &[u16]) -> io::Result<usize> {
    let mut socket = Socket::open_netfilter()?;
    let mut flows: Vec<(u8, Vec<u8>)> = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family = u8::try_from(family).unwrap_or_default();
        socket.query(Request::new(GET, libc::NLM_F_DUMP, &[family, 0, 0, 0]), |body| {
            flows.extend(original(body).filter(|tuple| sent_to(tuple, ports)).map(|tuple| (family, tuple.to_vec())));
        })?;
    }
    for (family, tuple) in &flows {
        let request = Request::new(DELETE, 0, &[*family, 0, 0, 0]).attribute(CTA_TUPLE_ORIG, tuple);
        match socket.request(vec![request]) {
            // It ended by itself.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            result => result?,
        }
    }
    Ok(flows.len())
}

/// What the first datagram of a flow said.
fn original(body: &[u8]) -> Option<&[u8]> {
    attributes(body.get(NFGENMSG..)?).find(|(kind, _)| *kind == CTA_TUPLE_ORIG).map(|(_, tuple)| tuple)
}

fn sent_to(tuple: &[u8], ports: &[u16]) -> bool {
    let Some((_, transport)) = attributes(tuple).find(|(kind, _)| *kind == CTA_TUPLE_PROTO) else { return false };
    let of = |wanted: u16| attributes(transport).find(|(kind, _)| *kind == wanted).map(|(_, payload)| payload);
    let udp = of(CTA_PROTO_NUM).is_some_and(|number| number.first() == Some(&17));
    let port = of(CTA_PROTO_DST_PORT).and_then(|port| Some(u16::from_be_bytes(port.get(..2)?.try_into().ok()?)));
    udp && port.is_some_and(|port| ports.contains(&port))
}
