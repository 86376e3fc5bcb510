//! Tells a supervisor that the daemon is ready and that its loop runs (sd_notify(3)): one datagram each. Does nothing
//! without a supervisor in the environment.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::pod::clock::Mono;

/// The supervisor's socket.
#[derive(Default)]
pub(super) struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// Half of the time after which the supervisor takes the daemon for stuck.
    every: Option<Duration>,
    next: Option<Mono>,
}

impl Notify {
    /// From the environment of this process (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).
    #[must_use]
    pub(super) fn from_env() -> Self {
        let var = |name| std::env::var_os(name);
        let number = |name| var(name)?.to_str()?.parse::<u64>().ok();
        // Inherited by a process that it is not meant for.
        let mine = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|_| mine).map(Duration::from_micros);
        var("NOTIFY_SOCKET").map_or_else(Self::default, |path| Self::new(path.as_bytes(), watchdog))
    }

    fn new(path: &[u8], watchdog: Option<Duration>) -> Self {
        let address = match path.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
        };
        let socket = UnixDatagram::unbound().and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        Self { to: socket.ok().zip(address.ok()), every: watchdog.map(|time| time / 2), next: None }
    }

    /// All is up.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// Called in each turn of the loop. Returns the latest time of the next call.
    pub(super) fn alive(&mut self, now: Mono) -> Option<Mono> {
        let every = self.every.filter(|_| self.to.is_some())?;
        if self.next.is_none_or(|next| next <= now) {
            self.send("WATCHDOG=1");
            self.next = Some(now.after(every));
        }
        self.next
    }

    fn send(&self, what: &str) {
        if let Some((socket, address)) = &self.to
            && let Err(error) = socket.send_to_addr(what.as_bytes(), address)
        {
            log::debug!("{what} does not reach the supervisor: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supervisor_is_notified_at_start_and_twice_per_timeout() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("notify");
        let supervisor = UnixDatagram::bind(&path).unwrap();
        supervisor.set_nonblocking(true).unwrap();
        let heard = || {
            let mut text = [0; 64];
            supervisor.recv(&mut text).ok().map(|length| String::from_utf8_lossy(&text[..length]).into_owned())
        };
        let mut notify = Notify::new(path.as_os_str().as_bytes(), Some(Duration::from_secs(60)));
        let at = |seconds| Mono::from_duration(Duration::from_secs(seconds));
        notify.ready();
        assert_eq!(heard().as_deref(), Some("READY=1"));
        assert_eq!(notify.alive(at(5)), Some(at(35)));
        assert_eq!(heard().as_deref(), Some("WATCHDOG=1"));
        assert_eq!((notify.alive(at(20)), heard()), (Some(at(35)), None));
        assert_eq!(notify.alive(at(36)), Some(at(66)));
        assert_eq!(heard().as_deref(), Some("WATCHDOG=1"));
        assert_eq!(Notify::new(path.as_os_str().as_bytes(), None).alive(at(1)), None);
        assert_eq!(Notify::default().alive(at(1)), None);
    }
}
