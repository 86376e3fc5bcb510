//! The daemon's side: has a helper running, and tells it of the cluster. It outlives the daemon, and is found again.

use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use smol::channel::{Receiver, Sender, bounded};
use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::{Async, Timer};

use super::zone::Cluster;
use crate::net::Subnet;

/// How long a new helper may take, and how often is looked.
const START: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);
/// Before another one is started when one has ended: doubled each time.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_AT_MOST: Duration = Duration::from_secs(30);
/// One that has lived so long was no failure.
const PROVEN: Duration = Duration::from_secs(10);

/// How the helper is started.
#[derive(Clone, Debug)]
pub struct Helper {
    pub root: PathBuf,
    pub socket: PathBuf,
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
    /// What is to be run for as long as there shall be a helper, and how to tell it.
    pub fn keep(self) -> (Teller, impl Future<Output = ()> + 'static) {
        let (changed, changes) = bounded(1);
        let latest = Rc::new(RefCell::new(Vec::new()));
        let teller = Teller { latest: Rc::clone(&latest), changed };
        (teller, self.serve(latest, changes))
    }

    async fn serve(self, latest: Rc<RefCell<Vec<u8>>>, changes: Receiver<()>) {
        let mut pause = PAUSE;
        loop {
            let since = std::time::Instant::now();
            match self.connected(&latest, &changes).await {
                Ok(()) => return,
                Err(error) => log::warn!("the DNS helper of this node has ended ({error}); another one is started"),
            }
            if since.elapsed() > PROVEN {
                pause = PAUSE;
            }
            Timer::after(pause).await;
            pause = (pause * 2).min(PAUSE_AT_MOST);
        }
    }

    /// Tells a helper until it ends.
    async fn connected(&self, latest: &RefCell<Vec<u8>>, changes: &Receiver<()>) -> io::Result<()> {
        let mut stream = match Async::<UnixStream>::connect(&self.socket).await {
            Ok(stream) => stream,
            Err(_) => self.start().await?,
        };
        loop {
            let text = latest.borrow().clone();
            if !text.is_empty() {
                let length = u32::try_from(text.len()).unwrap_or_default().to_be_bytes();
                stream.write_all(&[&length[..], &text].concat()).await?;
                stream.read_exact(&mut [0]).await?;
            }
            let mut byte = [0];
            let ended = async { stream.read(&mut byte).await.map(|_| true) };
            let news = async { Ok(changes.recv().await.is_err()) };
            match news.or(ended).await {
                Ok(true) if changes.is_closed() => return Ok(()),
                Ok(true) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(false) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn start(&self) -> io::Result<Async<UnixStream>> {
        let mut command = smol::process::Command::new("/proc/self/exe");
        command.arg("dns").arg("--root").arg(&self.root);
        for subnet in &self.subnets {
            command.arg("--subnet").arg(subnet.to_string());
        }
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        let mut child = command.spawn()?;
        let tries = START.as_millis() / LOOK.as_millis();
        for _ in 0..tries {
            if let Ok(stream) = Async::<UnixStream>::connect(&self.socket).await {
                return Ok(stream);
            }
            if let Some(status) = child.try_status()? {
                return Err(io::Error::other(format!("it could not start: {status}")));
            }
            Timer::after(LOOK).await;
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// Ends a helper that an earlier daemon has left; fine where there is none.
pub fn end(socket: &Path) {
    use std::io::{Read, Write};
    let Ok(mut stream) = UnixStream::connect(socket) else { return };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let _ = stream.write_all(&[0; 4]);
    // It ends by ending.
    let _ = stream.read(&mut [0]);
    let _ = std::fs::remove_file(socket);
}
