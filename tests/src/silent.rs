//! Peers that accept a connection or a datagram and send nothing. Owns the sockets; clients have to give up on their
//! own.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Ends when it is dropped; its clients then see the end of the connection.
pub struct Silent {
    pub address: SocketAddr,
    heard: Arc<AtomicUsize>,
    /// Dropped first: its thread then ends at its next check.
    alive: Arc<()>,
}

/// Interval of the check whether it is still needed.
const LOOK: Duration = Duration::from_millis(50);

impl Silent {
    /// Accepts every TCP connection, reads nothing, keeps it open.
    ///
    /// # Panics
    /// The address is not free.
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("a free address");
        listener.set_nonblocking(true).expect("set");
        let silent = Self::at(listener.local_addr().expect("an address"));
        let (heard, alive) = (Arc::clone(&silent.heard), Arc::downgrade(&silent.alive));
        let kept: Mutex<Vec<TcpStream>> = Mutex::default();
        std::thread::spawn(move || {
            while alive.strong_count() > 0 {
                match listener.accept() {
                    Ok((stream, _)) => {
                        heard.fetch_add(1, Ordering::Relaxed);
                        kept.lock().expect("one thread").push(stream);
                    }
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        });
        silent
    }

    /// Accepts every datagram.
    ///
    /// # Panics
    /// The address is not free.
    #[must_use]
    pub fn udp(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind(address).expect("a free address");
        socket.set_read_timeout(Some(LOOK)).expect("set");
        let silent = Self::at(socket.local_addr().expect("an address"));
        let (heard, alive) = (Arc::clone(&silent.heard), Arc::downgrade(&silent.alive));
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while alive.strong_count() > 0 {
                if socket.recv_from(&mut buffer).is_ok() {
                    heard.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        silent
    }

    fn at(address: SocketAddr) -> Self {
        Self { address, heard: Arc::default(), alive: Arc::new(()) }
    }

    /// Number of connections or datagrams so far.
    #[must_use]
    pub fn heard(&self) -> usize {
        self.heard.load(Ordering::Relaxed)
    }
}
