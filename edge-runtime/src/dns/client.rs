//! The daemon's side: keeps a helper running and sends it the cluster. A new daemon takes over a running helper.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use smol::channel::{Receiver, Sender, bounded};
use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::{Async, Timer};

use super::control::{self, Said};
use super::zone::Cluster;
use crate::counters;
use crate::net::Subnet;
use crate::sys::helper;
use crate::sys::time::within;

/// Back-off before the next start of a helper that has ended; doubled each time.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_AT_MOST: Duration = Duration::from_secs(30);
/// Time for the helper to take a message. After it the helper counts as hung.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for the rest of a message whose first byte has arrived.
const REST: Duration = Duration::from_secs(5);
/// A helper that has run this long resets the back-off.
const PROVEN: Duration = Duration::from_secs(10);

/// Arguments of the helper.
#[derive(Clone, Debug)]
pub struct Helper {
    pub root: PathBuf,
    pub socket: PathBuf,
    pub listen: Vec<IpAddr>,
    pub subnets: Vec<Subnet>,
}

/// Sends the cluster to the connected helper.
#[derive(Debug)]
pub struct Teller {
    place: Rc<RefCell<Place>>,
    news: Sender<()>,
}

/// The next message, and the state of the helper. Sent messages are not kept: with a thousand Services one is as large
/// as the helper's own data.
#[derive(Debug, Default)]
struct Place {
    news: Vec<u8>,
    /// A helper is connected and has taken every message.
    free: bool,
    told: Told,
}

/// What the connected helper has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Nothing,
    /// The whole cluster. `parts`: the helper accepts changes from now on.
    All { parts: bool },
}

impl Teller {
    /// Whether a helper is ready for a message. The daemon's loop is woken when one becomes ready.
    pub fn is_free(&self) -> bool {
        self.place.borrow().free
    }

    /// Whether the helper has not received the cluster yet.
    pub fn wants_all(&self) -> bool {
        self.place.borrow().told == Told::Nothing
    }

    /// Whether the next message may contain only changes.
    pub fn takes_parts(&self) -> bool {
        self.place.borrow().told == Told::All { parts: true }
    }

    /// Sends a message to the helper, which must be ready.
    pub fn tell(&self, cluster: &Cluster) {
        let mut place = self.place.borrow_mut();
        place.news = serde_json::to_vec(cluster).unwrap_or_default();
        place.free = false;
        let _ = self.news.try_send(());
    }
}

/// Callbacks into the daemon.
struct Hears {
    asked: Box<dyn Fn(String)>,
    wake: Box<dyn Fn()>,
}

impl Helper {
    /// Returns the sender of messages, and the future that keeps a helper running while it is polled. The future calls
    /// `asked` with each namespace that the helper asks about. The name is untrusted: the helper may be compromised. It
    /// calls `wake` when the helper is ready for a message.
    pub fn keep(
        self,
        asked: impl Fn(String) + 'static,
        wake: impl Fn() + 'static,
    ) -> (Teller, impl Future<Output = ()> + 'static) {
        let (news, told) = bounded(1);
        let place = Rc::<RefCell<Place>>::default();
        let teller = Teller { place: Rc::clone(&place), news };
        (teller, self.serve(place, told, Hears { asked: Box::new(asked), wake: Box::new(wake) }))
    }

    async fn serve(self, place: Rc<RefCell<Place>>, news: Receiver<()>, hears: Hears) {
        let mut pause = PAUSE;
        loop {
            let since = Instant::now();
            let ended = self.connected(&place, &news, &hears).await;
            *place.borrow_mut() = Place::default();
            match ended {
                Ok(()) => return,
                Err(error) => {
                    counters::LOST_DNS.one();
                    log::warn!("the DNS helper of this node has ended ({error}); another one is started");
                }
            }
            if since.elapsed() > PROVEN {
                pause = PAUSE;
            }
            Timer::after(pause).await;
            pause = (pause * 2).min(PAUSE_AT_MOST);
        }
    }

    /// Sends messages to a helper until it ends.
    async fn connected(&self, place: &RefCell<Place>, news: &Receiver<()>, hears: &Hears) -> io::Result<()> {
        let mut stream = helper::connect_or_start(&self.socket, || self.command()).await?;
        let ended = self.tell(&mut stream, place, news, hears).await;
        if ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            helper::kill_hung(&stream);
        }
        ended
    }

    async fn tell(
        &self,
        stream: &mut Async<UnixStream>,
        place: &RefCell<Place>,
        news: &Receiver<()>,
        hears: &Hears,
    ) -> io::Result<()> {
        let free = |told: Told| {
            *place.borrow_mut() = Place { news: Vec::new(), free: true, told };
            (hears.wake)();
        };
        free(Told::Nothing);
        // When the message was sent that the helper has not acknowledged yet.
        let mut under_way = None;
        loop {
            let text = std::mem::take(&mut place.borrow_mut().news);
            if !text.is_empty() {
                let length = u32::try_from(text.len()).unwrap_or_default().to_be_bytes();
                let text = [&length[..], &text].concat();
                let told = stream.write_all(&text);
                within(PATIENCE, told).await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
                under_way = Some(Instant::now());
            }
            let mut first = [0];
            let said = async { stream.read_exact(&mut first).await.map(|()| true) };
            let changed = async {
                match news.recv().await {
                    Ok(()) => Ok(false),
                    Err(_) => Err(io::ErrorKind::Interrupted.into()),
                }
            };
            // The helper acknowledges each message.
            let hangs = async {
                match under_way {
                    Some(since) => Timer::at(since + PATIENCE).await,
                    None => std::future::pending().await,
                };
                Err(io::ErrorKind::TimedOut.into())
            };
            match changed.or(said).or(hangs).await {
                Ok(false) => {}
                Ok(true) => match within(REST, control::said(&*stream, first[0])).await {
                    Some(said) => match said? {
                        Said::Asked(namespace) => (hears.asked)(namespace),
                        Said::Taken { parts } => {
                            under_way = None;
                            free(Told::All { parts });
                        }
                    },
                    None => return Err(io::ErrorKind::TimedOut.into()),
                },
                Err(_) if news.is_closed() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn command(&self) -> smol::process::Command {
        let mut command = smol::process::Command::new("/proc/self/exe");
        command.arg("dns").arg("--root").arg(&self.root);
        for ip in &self.listen {
            command.arg("--listen").arg(ip.to_string());
        }
        for subnet in &self.subnets {
            command.arg("--subnet").arg(subnet.to_string());
        }
        command
    }
}

/// Ends a helper that an earlier daemon has left. Does nothing if none runs.
pub fn end(socket: &Path) {
    helper::end(socket, &[0; 4]);
}
