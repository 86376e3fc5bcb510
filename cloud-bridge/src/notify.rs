//! Tells a supervisor that the bridge is up and that its thread is not blocked (sd_notify(3)). Without a socket in the
//! environment it does nothing.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The supervisor, and its watchdog interval.
pub struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    every: Option<Duration>,
}

impl Notify {
    /// From the environment of this process (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).
    #[must_use]
    pub fn from_env() -> Self {
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        // Inherited by a process for which it is not meant.
        let mine = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| mine && *usec > 0).map(Duration::from_micros);
        match std::env::var_os("NOTIFY_SOCKET") {
            Some(path) => Self::new(path.as_bytes(), watchdog),
            None => Self { to: None, every: None },
        }
    }

    fn new(path: &[u8], watchdog: Option<Duration>) -> Self {
        let address = match path.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(OsStr::from_bytes(path)),
        };
        let socket = UnixDatagram::unbound().and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        Self { to: socket.ok().zip(address.ok()), every: watchdog.map(|time| time / 2) }
    }

    /// Reports that all is up, and then periodically that the thread is not blocked, until dropped.
    pub async fn run(self) -> Infallible {
        self.send("READY=1");
        let Some(every) = self.every.filter(|_| self.to.is_some()) else { return std::future::pending().await };
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(every).await;
        }
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

    #[tokio::test]
    async fn supervisor_is_notified_at_start_and_twice_per_timeout() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("notify");
        let supervisor = UnixDatagram::bind(&path).unwrap();
        supervisor.set_nonblocking(true).unwrap();
        let notify = Notify::new(path.as_os_str().as_bytes(), Some(Duration::from_millis(20)));
        let saying = tokio::spawn(notify.run());
        let mut heard = Vec::new();
        let mut text = [0; 64];
        while heard.len() < 4 {
            match supervisor.recv(&mut text) {
                Ok(length) => heard.push(String::from_utf8_lossy(&text[..length]).into_owned()),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        assert_eq!(heard, ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]);
        saying.abort();
    }
}
