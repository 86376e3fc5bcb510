//! A rate limit on a link: a token bucket as its root queue (`tcmsg` of rtnetlink(7), linux/pkt_sched.h).

use std::io;

use nix::libc;

use super::Socket;
use super::message::Request;

const RTM_NEWQDISC: u16 = 36;
/// Attributes and constants that `libc` does not name (linux/rtnetlink.h, linux/pkt_sched.h).
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_LINKLAYER_ETHERNET: u8 = 1;

/// Maximum delay of a packet, as in the bandwidth plugin of CNI.
const LATENCY_MS: u64 = 25;
/// Minimum size of the bucket: some full packets. With less no packet would pass.
const LEAST_BURST: u64 = 16 * 1024;

/// Lets at most `bits` per second out of a link. Replaces an earlier limit.
///
/// # Errors
/// `ENOENT`: the kernel has no token bucket (module `sch_tbf`).
pub fn limit(socket: &mut Socket, index: u32, bits: u64) -> io::Result<()> {
    let rate = (bits / 8).max(1);
    // Ten milliseconds at full rate: enough to keep a fast link busy between two timer ticks.
    let burst = u32::try_from((rate / 100).max(LEAST_BURST)).unwrap_or(u32::MAX);
    let queue = u32::try_from(rate * LATENCY_MS / 1000 + u64::from(burst)).unwrap_or(u32::MAX);
    let mut fixed = [0; 20];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&0x0001_0000u32.to_ne_bytes());
    fixed[12..16].copy_from_slice(&TC_H_ROOT.to_ne_bytes());
    let request = Request::new(RTM_NEWQDISC, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &fixed).text(TCA_KIND, "tbf");
    let request = request.nest(TCA_OPTIONS, |options| {
        let options = options
            .attribute(TCA_TBF_PARMS, &parameters(u32::try_from(rate).unwrap_or(u32::MAX), queue))
            .attribute(TCA_TBF_BURST, &burst.to_ne_bytes());
        if u32::try_from(rate).is_err() { options.attribute(TCA_TBF_RATE64, &rate.to_ne_bytes()) } else { options }
    });
    socket.request(vec![request])
}

/// `struct tc_tbf_qopt`: rate, no peak rate, the queue's limit; the bucket comes as an attribute of its own.
fn parameters(rate: u32, queue: u32) -> [u8; 36] {
    let mut bytes = [0; 36];
    bytes[1] = TC_LINKLAYER_ETHERNET;
    bytes[8..12].copy_from_slice(&rate.to_ne_bytes());
    bytes[24..28].copy_from_slice(&queue.to_ne_bytes());
    bytes
}
