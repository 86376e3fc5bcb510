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
    /// Kept between requests: each one would have its own from the kernel and give it back. Only what answers fill is
    /// in memory.
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        Self::of(SockProtocol::NetlinkRoute)
    }

    /// Same as [`Socket::open`], for connection tracking and the like.
    pub fn open_netfilter() -> io::Result<Self> {
        Self::of(SockProtocol::NetlinkNetFilter)
    }

    fn of(protocol: SockProtocol) -> io::Result<Self> {
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        connect(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { fd, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Sends `requests` in one datagram; the kernel works on them in order, before `send` returns.
    /// The first refusal is the result; requests behind it are still worked on.
    pub fn request(&mut self, requests: Vec<Request>) -> io::Result<()> {
        self.exchange(requests, &mut |_| {})
    }

    /// Sends a query and hands each answer's body (fixed header and attributes) to `each`.
    /// `NLM_F_DUMP` in the request's flags makes it a list.
    pub fn query(&mut self, request: Request, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        self.exchange(vec![request], &mut each)
    }

    /// Same as [`Socket::query`] for a list that may be long: other tasks run after each part of it.
    ///
    /// # Errors
    /// Same as [`Socket::query`].
    pub async fn list(&mut self, request: Request, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let first = self.send(vec![request])?;
        let mut result = Ok(());
        loop {
            let mut of_each = Ok(());
            let done = self.receive(first, &mut result, &mut |body| {
                if of_each.is_ok() {
                    of_each = each(body);
                }
            })?;
            of_each?;
            if done {
                return result;
            }
            smol::future::yield_now().await;
        }
    }

    fn exchange(&mut self, requests: Vec<Request>, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let first = self.send(requests)?;
        let mut result = Ok(());
        while !self.receive(first, &mut result, each)? {}
        result
    }

    /// Sends requests in one datagram; the sequence number of the first.
    fn send(&mut self, requests: Vec<Request>) -> io::Result<u32> {
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
        Ok(first_sequence)
    }

    /// Takes one datagram of the answers to the requests from `first` on, into `result` what was refused; whether that was
    /// the last one.
    fn receive(&mut self, first: u32, result: &mut io::Result<()>, each: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let received = recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::empty())?;
        for answer in answers(self.buffer.get(..received).unwrap_or_default()) {
            if answer.sequence.wrapping_sub(first) > u32::MAX / 2 {
                continue; // of an earlier request
            }
            match i32::from(answer.kind) {
                libc::NLMSG_DONE => return Ok(true),
                libc::NLMSG_ERROR => {
                    let code = i32_at(answer.body, 0).unwrap_or(-libc::EBADMSG);
                    if code != 0 && result.is_ok() {
                        *result = Err(io::Error::from_raw_os_error(-code));
                    }
                    if answer.sequence == self.sequence {
                        return Ok(true);
                    }
                }
                _ => each(answer.body),
            }
        }
        Ok(false)
    }
}
