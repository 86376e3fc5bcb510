//! A relay between a node and its bridge with the faults of real networks. Owns the faults and their times; does not
//! read the data.
//!
//! It ends TCP on both sides, so packets are never lost permanently: for the two ends of a TCP connection, a lossy
//! network means that bytes arrive late and in order, or that the connection breaks. [`crate::uplink`] simulates real
//! packet loss.

mod pipe;
mod schedule;

use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use schedule::Cuts;

/// Faults that apply to every byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Whether new connections are closed at once.
    pub refuse: bool,
    /// Whether nothing arrives at the bridge, without an error: half-open.
    pub silent_up: bool,
    /// Whether nothing arrives at the node, without an error.
    pub silent_down: bool,
    /// Delay of every byte.
    pub delay: Duration,
    /// Limit in bytes per second, in each direction.
    pub rate: Option<u32>,
    /// Percentage of pieces that are lost once: they arrive late, as TCP retransmits them, and delay those behind.
    pub late_percent: u64,
    /// Pieces of a thousand that break the connection.
    pub break_permille: u64,
}

impl Faults {
    /// Nothing passes in either direction, without an error.
    #[must_use]
    pub fn silence() -> Self {
        Self { silent_up: true, silent_down: true, ..Self::default() }
    }
}

/// Bytes that passed, and the number of their pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    pub bytes: u64,
    pub pieces: u64,
}

#[derive(Debug, Default)]
struct Counter {
    bytes: AtomicU64,
    pieces: AtomicU64,
}

impl Counter {
    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.pieces.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Passed {
        Passed { bytes: self.bytes.load(Ordering::Relaxed), pieces: self.pieces.load(Ordering::Relaxed) }
    }
}

/// One listening address in front of a bridge. Ends with its connections when dropped.
pub struct FaultProxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    faults: Mutex<Faults>,
    changed: Condvar,
    sockets: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
    accepted: AtomicU64,
    up: Counter,
    down: Counter,
    /// Held by a schedule while it causes faults, and by a test that must not see any.
    calm: Mutex<()>,
}

impl FaultProxy {
    /// Listens on a free port of `ip` for connections to `target`.
    ///
    /// # Panics
    /// No port is free.
    #[must_use]
    pub fn start(ip: IpAddr, target: SocketAddr) -> Self {
        let listener = TcpListener::bind((ip, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            target,
            faults: Mutex::default(),
            changed: Condvar::new(),
            sockets: Mutex::default(),
            over: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            up: Counter::default(),
            down: Counter::default(),
            calm: Mutex::new(()),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accepting.accept(&listener));
        Self { address, shared }
    }

    /// The URL for a join command.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Sets the faults.
    pub fn set(&self, faults: Faults) {
        self.shared.set(faults);
    }

    /// Closes every connection in the regular way of TCP.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Number of accepted connections so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Traffic towards the bridge, and towards the node.
    #[must_use]
    pub fn passed(&self) -> (Passed, Passed) {
        (self.shared.up.read(), self.shared.down.read())
    }

    /// Waits until no schedule causes faults, and prevents them while the guard lives.
    #[must_use]
    pub fn calm(&self) -> impl Drop + '_ {
        self.shared.calm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the link again and again until this proxy is dropped.
    pub fn keep_cutting(&self, cuts: Cuts) {
        let shared = Arc::downgrade(&self.shared);
        std::thread::spawn(move || schedule::run(&shared, cuts));
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.cut();
        self.shared.changed.notify_all();
        // Wakes the accepting thread, which then ends.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

impl Shared {
    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, faults: Faults) {
        *self.faults() = faults;
        self.changed.notify_all();
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn cut(&self) {
        for socket in self.sockets().drain(..) {
            // A connection that was just accepted is cut too.
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        while let Ok((near, _)) = listener.accept() {
            if self.is_over() {
                return;
            }
            if self.faults().refuse {
                continue;
            }
            self.accepted.fetch_add(1, Ordering::Relaxed);
            // A bridge that is down refuses on its own.
            let Ok(far) = TcpStream::connect(self.target) else { continue };
            let clone = |socket: &TcpStream| socket.try_clone().expect("a descriptor");
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            self.sockets().extend([clone(&near), clone(&far)]);
            for (from, to, up) in [(clone(&near), clone(&far), true), (far, near, false)] {
                pipe::start(&self, from, to, up);
            }
        }
    }
}
