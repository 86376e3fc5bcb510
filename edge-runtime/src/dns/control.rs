//! The messages between daemon and helper, over a Unix socket. The daemon sends the cluster: a length of four bytes and
//! JSON; a length of zero ends the helper. The helper acknowledges each message, and asks about namespaces.
//!
//! The first message of a connection is the whole cluster. A helper that acknowledges it with [`KEPT`] accepts changes
//! from then on. A helper or daemon of an older version uses whole clusters only.

use std::cell::RefCell;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;

use smol::Async;
use smol::io::{AsyncReadExt, AsyncWriteExt};

use super::zone::Cluster;
use crate::sys::from_json::from_json;

/// First byte of a message of the helper. `TAKEN`: acknowledges a message. `ASKED`: asks about a namespace; length and
/// name follow. `KEPT`: acknowledges a message, and the next ones may be changes.
pub const TAKEN: u8 = 1;
pub const ASKED: u8 = 2;
pub const KEPT: u8 = 3;
/// Maximum length of a message of the daemon, in bytes.
const LONGEST_NEWS: usize = 16 << 20;

/// The helper's side.
pub struct Control {
    listen: Vec<IpAddr>,
    daemon: RefCell<Option<Rc<Async<UnixStream>>>>,
}

impl Control {
    /// Creates the side of a helper that listens at these addresses.
    pub fn new(listen: Vec<IpAddr>) -> Self {
        Self { listen, daemon: RefCell::default() }
    }

    /// Asks the connected daemon, if any, about this namespace.
    pub fn ask(&self, namespace: &str) {
        let Ok(length) = u8::try_from(namespace.len()) else { return };
        if let Some(daemon) = &*self.daemon.borrow() {
            // So few bytes are written whole or, to a daemon that does not read, not at all: the client will repeat its
            // query.
            let _ = daemon.get_ref().write(&[&[ASKED, length], namespace.as_bytes()].concat());
        }
    }

    /// Receives messages of one daemon after the other. Returns when a daemon ends the helper or wants it at other
    /// addresses.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn follow(&self, listener: &Async<UnixListener>, mut take: impl FnMut(Cluster)) -> io::Result<()> {
        loop {
            let (daemon, _) = listener.accept().await?;
            let daemon = Rc::new(daemon);
            *self.daemon.borrow_mut() = Some(Rc::clone(&daemon));
            loop {
                match news(&daemon).await {
                    Ok(None) => return Ok(()),
                    Ok(Some(cluster)) if cluster.listen != self.listen => return Ok(()),
                    Ok(Some(cluster)) => {
                        let answer = if cluster.offers_parts { KEPT } else { TAKEN };
                        take(cluster);
                        if (&*daemon).write_all(&[answer]).await.is_err() {
                            break;
                        }
                    }
                    // Without a daemon its last message stays valid.
                    Err(_) => break,
                }
            }
            *self.daemon.borrow_mut() = None;
        }
    }
}

async fn news(mut daemon: &Async<UnixStream>) -> io::Result<Option<Cluster>> {
    let mut length = [0; 4];
    daemon.read_exact(&mut length).await?;
    let length = u32::from_be_bytes(length) as usize;
    if length == 0 {
        return Ok(None);
    }
    if length > LONGEST_NEWS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    daemon.read_exact(&mut text).await?;
    Ok(Some(from_json(&text)?))
}

/// A message of the helper.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// Acknowledges a message.
    Taken {
        /// The next messages may be changes.
        parts: bool,
    },
    /// Asks about a namespace.
    Asked(String),
}

/// Reads the rest of a message of the helper after its first byte.
///
/// # Errors
/// The helper has ended, or the message is malformed.
pub async fn said(mut helper: &Async<UnixStream>, first: u8) -> io::Result<Said> {
    match first {
        TAKEN | KEPT => Ok(Said::Taken { parts: first == KEPT }),
        ASKED => {
            let mut length = [0];
            helper.read_exact(&mut length).await?;
            let mut name = vec![0; usize::from(length[0])];
            helper.read_exact(&mut name).await?;
            String::from_utf8(name).map(Said::Asked).map_err(|_| io::ErrorKind::InvalidData.into())
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use smol::future::FutureExt;

    use super::*;

    /// Sends a message and reads the acknowledgement.
    async fn tell(mut helper: &Async<UnixStream>, cluster: &Cluster) -> Said {
        let text = serde_json::to_vec(cluster).unwrap();
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        helper.write_all(&[&length[..], &text].concat()).await.unwrap();
        let mut first = [0];
        helper.read_exact(&mut first).await.unwrap();
        said(helper, first[0]).await.unwrap()
    }

    #[test]
    fn helper_offers_parts_only_to_a_daemon_that_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dns");
        let listener = Async::new(UnixListener::bind(&path).unwrap()).unwrap();
        let daemon = Async::new(UnixStream::connect(&path).unwrap()).unwrap();
        let (control, taken) = (Control::new(Vec::new()), RefCell::new(Vec::new()));
        let helper = async {
            let ended = control.follow(&listener, |cluster| taken.borrow_mut().push(cluster.partial)).await;
            assert!(ended.is_err(), "no daemon has ended it");
        };
        let told = async {
            let older = Cluster::default();
            assert_eq!(tell(&daemon, &older).await, Said::Taken { parts: false });
            let newer = Cluster { offers_parts: true, ..Cluster::default() };
            assert_eq!(tell(&daemon, &newer).await, Said::Taken { parts: true });
            tell(&daemon, &Cluster { partial: true, ..newer }).await;
            assert_eq!(*taken.borrow(), [false, false, true]);
        };
        smol::block_on(told.or(helper));
    }
}
