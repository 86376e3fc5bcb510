//! One direction of one relayed connection: a thread that reads, and a thread that writes when it is time.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{Faults, Shared};

/// About the size of a packet.
const PIECE: usize = 1400;
/// Maximum number of pieces under way; beyond it the sender waits.
const ON_THE_WAY: usize = 48;

struct Piece {
    due: Instant,
    /// Empty: the end.
    bytes: Vec<u8>,
}

pub(super) fn start(shared: &Arc<Shared>, from: TcpStream, to: TcpStream, up: bool) {
    let (sender, pieces) = sync_channel(ON_THE_WAY);
    let reading = Arc::clone(shared);
    std::thread::spawn(move || read(&reading, from, &sender));
    let writing = Arc::clone(shared);
    std::thread::spawn(move || {
        write(&writing, &to, &pieces, up);
        // The other direction may have ended it already.
        let _ = to.shutdown(Shutdown::Write);
    });
}

fn read(shared: &Shared, mut from: TcpStream, pieces: &SyncSender<Piece>) {
    let mut buffer = [0; PIECE];
    loop {
        let bytes = from.read(&mut buffer).map_or(&[][..], |count| &buffer[..count]);
        let due = Instant::now() + shared.faults().delay;
        let end = bytes.is_empty();
        if pieces.send(Piece { due, bytes: bytes.to_vec() }).is_err() || end {
            return;
        }
    }
}

fn write(shared: &Shared, mut to: &TcpStream, pieces: &Receiver<Piece>, up: bool) {
    let counter = if up { &shared.up } else { &shared.down };
    let mut random = Random::new();
    let mut free = Instant::now();
    for Piece { due, bytes } in pieces {
        let faults = shared.faults();
        let silent = |faults: &mut Faults| !shared.is_over() && if up { faults.silent_up } else { faults.silent_down };
        // A silent line passes no bytes and no end of a connection.
        let faults = *shared.changed.wait_while(faults, silent).unwrap_or_else(PoisonError::into_inner);
        if bytes.is_empty() {
            return;
        }
        let mut at = due.max(free);
        if random.below(100) < faults.late_percent {
            // Linux retransmits after at least 200 ms, and after twice as long if the retransmission is lost.
            at += Duration::from_millis(200 << random.below(3));
        }
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if random.below(1000) < faults.break_permille {
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
        if to.write_all(&bytes).is_err() {
            return;
        }
        counter.add(bytes.len());
        let took =
            faults.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(bytes.len() as f64 / f64::from(rate)));
        free = at.max(Instant::now()) + took;
    }
}

/// xorshift64*: good enough to select pieces.
struct Random(u64);

impl Random {
    fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self(RandomState::new().hash_one(0) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}
