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

use super::control;
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
    latest: Rc<RefCell<Vec<u8>>>,
    changed: Sender<()>,
}

impl Teller {
    /// The helper will know this as soon as it can.
    pub fn tell(&self, cluster: &Cluster) {
        let text = serde_json::to_vec(cluster).unwrap_or_default();
        if *self.latest.borrow() != text {
            *self.latest.borrow_mut() = text;
            // One that is under way tells the newest, too.
            let _ = self.changed.try_send(());
        }
    }
}

impl Helper {
    /// What is to be run for as long as there shall be a helper, and how to tell it. `asked` is called with the
    /// namespaces that it asks about: whatever it is told, for it may have been taken over.
    pub fn keep(self, asked: impl Fn(String) + 'static) -> (Teller, impl Future<Output = ()> + 'static) {
        let (changed, changes) = bounded(1);
        let latest = Rc::new(RefCell::new(Vec::new()));
        let teller = Teller { latest: Rc::clone(&latest), changed };
        (teller, self.serve(latest, changes, Box::new(asked)))
    }

    async fn serve(self, latest: Rc<RefCell<Vec<u8>>>, changes: Receiver<()>, asked: Box<dyn Fn(String)>) {
        let mut pause = PAUSE;
        loop {
            let since = Instant::now();
            match self.connected(&latest, &changes, &*asked).await {
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
    async fn connected(
        &self,
        latest: &RefCell<Vec<u8>>,
        changes: &Receiver<()>,
        asked: &dyn Fn(String),
    ) -> io::Result<()> {
        let mut stream = helper::connect_or_start(&self.socket, || self.command()).await?;
        let ended = self.tell(&mut stream, latest, changes, asked).await;
        if ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            helper::kill_hung(&stream);
        }
        ended
    }

    async fn tell(
        &self,
        stream: &mut Async<UnixStream>,
        latest: &RefCell<Vec<u8>>,
        changes: &Receiver<()>,
        asked: &dyn Fn(String),
    ) -> io::Result<()> {
        // What was told and not yet taken, and what is to be told.
        let (mut under_way, mut news) = (None, true);
        loop {
            if news && under_way.is_none() {
                news = false;
                let text = latest.borrow().clone();
                if !text.is_empty() {
                    let length = u32::try_from(text.len()).unwrap_or_default().to_be_bytes();
                    let text = [&length[..], &text].concat();
                    let told = stream.write_all(&text);
                    within(PATIENCE, told).await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
                    under_way = Some(Instant::now());
                }
            }
            let mut first = [0];
            let said = async { stream.read_exact(&mut first).await.map(|()| true) };
            let changed = async {
                match changes.recv().await {
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
                Ok(false) => news = true,
                Ok(true) => match within(REST, control::said(&*stream, first[0])).await {
                    Some(said) => match said? {
                        Some(namespace) => asked(namespace),
                        None => under_way = None,
                    },
                    None => return Err(io::ErrorKind::TimedOut.into()),
                },
                Err(_) if changes.is_closed() => return Ok(()),
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
