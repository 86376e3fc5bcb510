//! An HTTP proxy in front of a node: it opens tunnels to what it knows by name, for clients with the right login. Owns its
//! socket and its connections.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const OPEN: &str = "HTTP/1.1 200 Connection established\r\n\r\n";
const LOGIN: &str = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"test\"\r\n\r\n";
const FILTERED: &str = "HTTP/1.1 403 Filtered\r\n\r\n";
const UNREACHABLE: &str = "HTTP/1.1 502 Bad Gateway\r\n\r\n";

/// Ends with its connections when it is dropped.
pub struct HttpProxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// `HOST:PORT` of a request, and where it leads: no resolver knows such a host.
    names: Vec<(String, SocketAddr)>,
    login: Option<String>,
    asked: Mutex<Vec<String>>,
    sockets: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpProxy {
    /// Listens on a free port of `ip`. `login`: the `Proxy-Authorization` that it wants, `Basic BASE64`.
    ///
    /// # Panics
    /// No port is free.
    #[must_use]
    pub fn start(ip: IpAddr, names: &[(&str, SocketAddr)], login: Option<&str>) -> Self {
        let listener = TcpListener::bind((ip, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            names: names.iter().map(|(name, target)| ((*name).to_owned(), *target)).collect(),
            login: login.map(str::to_owned),
            asked: Mutex::default(),
            sockets: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if accepting.over.load(Ordering::Relaxed) {
                    return;
                }
                let serving = Arc::clone(&accepting);
                // A client may go at any time.
                std::thread::spawn(move || drop(serving.serve(client)));
            }
        });
        Self { address, shared }
    }

    /// For `proxy.url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// First lines of the requests so far.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        lock(&self.shared.asked).clone()
    }

    /// Closes every tunnel.
    pub fn cut(&self) {
        for socket in lock(&self.shared.sockets).drain(..) {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for HttpProxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.cut();
        // Wakes the accepting thread, which then ends.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

impl Shared {
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        // Nothing follows a request before it is answered.
        let lines = BufReader::new(client.try_clone()?).lines().map_while(Result::ok);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let first = head.first().cloned().unwrap_or_default();
        lock(&self.asked).push(first.clone());
        let sent = head.iter().find_map(|line| line.strip_prefix("Proxy-Authorization: "));
        if self.login.is_some() && sent != self.login.as_deref() {
            return client.write_all(LOGIN.as_bytes());
        }
        let wanted = first.strip_prefix("CONNECT ").and_then(|rest| rest.strip_suffix(" HTTP/1.1"));
        let target = self.names.iter().find(|(name, _)| wanted == Some(name.as_str())).map(|(_, target)| *target);
        let Some(target) = target else { return client.write_all(FILTERED.as_bytes()) };
        let Ok(mut server) = TcpStream::connect(target) else { return client.write_all(UNREACHABLE.as_bytes()) };
        client.write_all(OPEN.as_bytes())?;
        lock(&self.sockets).extend([client.try_clone()?, server.try_clone()?]);
        let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            to.shutdown(Shutdown::Both)
        });
        let _ = io::copy(&mut server, &mut client);
        client.shutdown(Shutdown::Both)
    }
}
