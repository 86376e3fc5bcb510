//! A route socket: sends requests, collects acknowledgements and dumps. Belongs to the network namespace in which
//! it was opened, wherever the thread goes later.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send, socket,
};

use super::message::{Request, answers, i32_at};

/// Holds the largest answer the kernel sends in one datagram (`NLMSG_GOODSIZE` is below 32 KiB).
const BUFFER: usize = 32 * 1024;

#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        Self::of(SockProtocol::NetlinkRoute)
    }

    /// As [`Socket::open`], for connection tracking and the like.
    pub fn open_netfilter() -> io::Result<Self> {
        Self::of(SockProtocol::NetlinkNetFilter)
    }

    fn of(protocol: SockProtocol) -> io::Result<Self> {
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        connect(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Sends `requests` in one datagram; the kernel works on them in order, before `send` returns.
    /// The first refusal is the result; requests behind it are still worked on.
    pub fn request(&mut self, requests: Vec<Request>) -> io::Result<()> {
        self.exchange(requests, |_| {})
    }

    /// Sends a query and hands each answer's body (fixed header and attributes) to `each`.
    /// `NLM_F_DUMP` in the request's flags makes it a list.
    pub fn query(&mut self, request: Request, each: impl FnMut(&[u8])) -> io::Result<()> {
        self.exchange(vec![request], each)
    }

    fn exchange(&mut self, requests: Vec<Request>, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let last = requests.len().saturating_sub(1);
        let mut bytes = Vec::with_capacity(512);
        let first_sequence = self.sequence.wrapping_add(1);
        for (index, request) in requests.into_iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            // A refusal is always answered: only the last request needs an acknowledgement, which ends the loop like the
            // end of a list.
            bytes.extend(request.finish(self.sequence, index == last));
        }
        send(self.fd.as_raw_fd(), &bytes, MsgFlags::empty())?;
        let mut buffer = vec![0; BUFFER];
        let mut result = Ok(());
        loop {
            let received = recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            for answer in answers(&buffer[..received]) {
                if answer.sequence.wrapping_sub(first_sequence) > u32::MAX / 2 {
                    continue; // of an earlier request
                }
                match i32::from(answer.kind) {
                    libc::NLMSG_DONE => return result,
                    libc::NLMSG_ERROR => {
                        let code = i32_at(answer.body, 0).unwrap_or(-libc::EBADMSG);
                        if code != 0 && result.is_ok() {
                            result = Err(io::Error::from_raw_os_error(-code));
                        }
                        if answer.sequence == self.sequence {
                            return result;
                        }
                    }
                    _ => each(answer.body),
                }
            }
        }
    }
}
