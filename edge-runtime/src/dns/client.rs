//! The daemon's side: has a helper running, and tells it of the cluster. It outlives the daemon, and is found again.

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

/// Before another one is started when one has ended: doubled each time.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_AT_MOST: Duration = Duration::from_secs(30);
/// For it to take what it is told: one that does not for so long hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// For the rest of what it has begun to say.
const REST: Duration = Duration::from_secs(5);
/// One that has lived so long was no failure.
const PROVEN: Duration = Duration::from_secs(10);

/// How the helper is started.
#[derive(Clone, Debug)]
pub struct Helper {
    pub root: PathBuf,
    pub socket: PathBuf,
    pub listen: Vec<IpAddr>,
    pub subnets: Vec<Subnet>,
}

/// What is told to whoever listens.
#[derive(Debug)]
pub struct Teller {
    place: Rc<RefCell<Place>>,
    news: Sender<()>,
}

/// The place for one piece of news, and what is known of the helper. Nothing is kept: of a thousand Services that would
/// be as much as the helper has.
#[derive(Debug, Default)]
struct Place {
    news: Vec<u8>,
    /// A helper is connected and has taken all that was told.
    free: bool,
    told: Told,
}

/// What the helper that is connected has been told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Nothing,
    /// It knows the cluster. `parts`: changes of it are enough.
    All { parts: bool },
}

impl Teller {
    /// Whether there is a helper that takes news now. The daemon's loop is woken when there is.
    pub fn is_free(&self) -> bool {
        self.place.borrow().free
    }

    /// Whether the helper has not been told the cluster yet.
    pub fn wants_all(&self) -> bool {
        self.place.borrow().told == Told::Nothing
    }

    /// Whether news may be what has changed since the last.
    pub fn takes_parts(&self) -> bool {
        self.place.borrow().told == Told::All { parts: true }
    }

    /// Tells the helper, which must be free.
    pub fn tell(&self, cluster: &Cluster) {
        let mut place = self.place.borrow_mut();
        place.news = serde_json::to_vec(cluster).unwrap_or_default();
        place.free = false;
        let _ = self.news.try_send(());
    }
}

/// How the daemon hears of the helper.
struct Hears {
    asked: Box<dyn Fn(String)>,
    wake: Box<dyn Fn()>,
}

impl Helper {
    /// What is to be run for as long as there shall be a helper, and how to tell it. `asked` is called with the
    /// namespaces that it asks about: whatever it is told, for it may have been taken over. `wake` is called when it is
    /// free for news.
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

    /// Tells a helper until it ends.
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
        // When news went that were not taken yet.
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
            // Whoever has begun to take something says when it has.
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

/// Ends a helper that an earlier daemon has left; fine where there is none.
pub fn end(socket: &Path) {
    helper::end(socket, &[0; 4]);
}
