//! What daemon and helper tell each other over a socket of the file system: the daemon the cluster, in a length of four
//! bytes and JSON (zero: it is enough); the helper that it has taken it, and of which namespaces it is asked.
//!
//! The first news of a connection are the whole cluster. A helper that answers them with [`KEPT`] takes changes from then
//! on; one of an older version always gets the whole cluster, as does every helper from an older daemon.

use std::cell::RefCell;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;

use smol::Async;
use smol::io::{AsyncReadExt, AsyncWriteExt};

use super::zone::Cluster;
use crate::sys::from_json::from_json;

/// First bytes of what the helper says: news were taken; a namespace (its length and name follow); news were taken, and
/// changes of them can follow.
pub const TAKEN: u8 = 1;
pub const ASKED: u8 = 2;
pub const KEPT: u8 = 3;
/// Of the daemon's news.
const LONGEST_NEWS: usize = 16 << 20;

/// The helper's side.
pub struct Control {
    listen: Vec<IpAddr>,
    daemon: RefCell<Option<Rc<Async<UnixStream>>>>,
}

impl Control {
    /// Of a helper that is asked at these addresses.
    pub fn new(listen: Vec<IpAddr>) -> Self {
        Self { listen, daemon: RefCell::default() }
    }

    /// Tells the daemon that somebody asks about this namespace, if there is one that listens.
    pub fn ask(&self, namespace: &str) {
        let Ok(length) = u8::try_from(namespace.len()) else { return };
        if let Some(daemon) = &*self.daemon.borrow() {
            // So few bytes go as a whole or, to a daemon that does not read, not at all: whoever asks will ask again.
            let _ = daemon.get_ref().write(&[&[ASKED, length], namespace.as_bytes()].concat());
        }
    }

    /// Takes the daemon's news, of one daemon after the other, until one says that it is enough, or wants the helper
    /// elsewhere.
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
                    // Without a daemon the last it said holds.
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

/// What the helper says.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// News were taken.
    Taken {
        /// It takes changes of them.
        parts: bool,
    },
    /// A namespace that it asks about.
    Asked(String),
}

/// Reads what the helper says, of which the first byte has come.
///
/// # Errors
/// The helper has ended, or says what none says.
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

    /// Tells news and reads the answer.
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
            assert!(ended.is_err(), "nobody has told it to end");
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
