//! Where the broker is, who we are there, and the next try when a connection has ended.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sampan_devices_control::{Address, Mqtt};
use sampan_sys::resolve::resolve;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::connection::serve;
use super::file;
use super::filters::Filters;
use super::news::News;
use super::packet::Login;
use super::queue::Waiting;

/// Between two tries: doubled each time.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_AT_MOST: Duration = Duration::from_secs(10);
/// A connection that lasted this long does not count as a failure.
const PROVEN: Duration = Duration::from_secs(10);
/// Timeout for connecting, and for reading the password.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a password file.
const PASSWORD: u64 = 4_096;

/// A broker, and who we are there.
#[derive(Debug)]
pub struct Broker {
    address: Address,
    client_id: String,
    username: String,
    password_file: Option<PathBuf>,
}

impl Broker {
    /// # Errors
    /// The address is malformed.
    pub fn new(mqtt: &Mqtt, node: &str) -> Result<Self, String> {
        let address = Address::parse(&mqtt.broker)?;
        let client_id = match mqtt.client_id.as_str() {
            "" => format!("edge-devices-{node}"),
            given => given.to_owned(),
        };
        let password_file = (!mqtt.password_file.is_empty()).then(|| mqtt.password_file.clone().into());
        Ok(Self { address, client_id, username: mqtt.username.clone(), password_file })
    }

    async fn login(&self) -> io::Result<Login> {
        let mut password = Vec::new();
        if let Some(path) = &self.password_file {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            let read = async {
                let file = file::open(path).await?;
                file.take(PASSWORD).read_to_end(&mut password).await
            };
            timeout(PATIENCE, read).await?.map_err(named)?;
            let end = password.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            password.truncate(end.unwrap_or(password.len()));
        }
        Ok(Login { client_id: self.client_id.clone(), username: self.username.clone(), password })
    }

    async fn serve(&self, news: &mpsc::Sender<News>, waiting: &mut Waiting, filters: &Filters) -> io::Result<()> {
        let login = self.login().await?;
        match &self.address {
            Address::Tcp { host, port } => {
                let connected = async {
                    // Not by libc: a static program has no NSS.
                    let addresses = resolve(host, *port).await.map_err(io::Error::other)?;
                    TcpStream::connect(&addresses[..]).await
                };
                let stream = timeout(PATIENCE, connected).await??;
                // Small packets, and each is waited for.
                stream.set_nodelay(true)?;
                serve(stream, &login, news, waiting, filters).await
            }
            Address::Unix(path) => {
                let stream = timeout(PATIENCE, UnixStream::connect(path)).await??;
                serve(stream, &login, news, waiting, filters).await
            }
        }
    }
}

/// Stays connected until the receiver of the news and the publishers are gone.
pub async fn run(broker: Broker, news: mpsc::Sender<News>, mut waiting: Waiting, filters: Filters) {
    let (mut pause, mut told) = (PAUSE, String::new());
    loop {
        let since = Instant::now();
        let Err(error) = broker.serve(&news, &mut waiting, &filters).await else { return };
        if news.send(News::Down).await.is_err() {
            return;
        }
        let lived = since.elapsed() > PROVEN;
        // Said once: a broker that is not there yet would fill the log.
        let why = error.to_string();
        if lived || why != told {
            log::warn!("no MQTT broker ({why}); tried again until there is one");
            told = why;
        }
        pause = if lived { PAUSE } else { pause };
        // Messages that were queued before the end was known are useless at the next broker; their senders are told.
        let forget = async { while waiting.next().await.is_some() {} };
        if timeout(pause, forget).await.is_ok() {
            return;
        }
        pause = (pause * 2).min(PAUSE_AT_MOST);
    }
}
