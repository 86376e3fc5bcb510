//! Two Modbus slaves on a serial line that is a pair of pseudo terminals (pty(7)). Frames by hand, after "MODBUS over Serial Line",
//! 2.5: the driver's own library does not judge itself here. Such a line has no parity, and knows no speed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use nix::pty::openpty;
use nix::unistd::ttyname;

#[derive(Default)]
pub(crate) struct Bank {
    /// Values by slave and register.
    pub(crate) words: BTreeMap<(u8, u16), u16>,
    pub(crate) writes: Vec<(u8, u16, u16)>,
    /// Slaves whose answers have a wrong checksum.
    pub(crate) noisy: Option<u8>,
}

pub(crate) struct Line {
    pub(crate) path: PathBuf,
    pub(crate) bank: Arc<Mutex<Bank>>,
    /// Kept open: a terminal without users hangs up.
    _ours: OwnedFd,
}

fn crc(bytes: &[u8]) -> [u8; 2] {
    let crc = bytes.iter().fold(0xffff_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xa001 } else { crc >> 1 })
    });
    crc.to_le_bytes()
}

impl Line {
    pub(crate) fn start(words: &[((u8, u16), u16)]) -> Self {
        let pair = openpty(None, None).unwrap();
        let path = ttyname(&pair.slave).unwrap();
        let bank = Bank { words: words.iter().copied().collect(), ..Bank::default() };
        let bank = Arc::new(Mutex::new(bank));
        let (shared, mut far) = (Arc::clone(&bank), File::from(pair.master));
        std::thread::spawn(move || {
            let mut request = [0; 8];
            // All requests that are made here have eight bytes.
            while far.read_exact(&mut request).is_ok() {
                assert_eq!(crc(&request[..6]), request[6..], "{request:x?}");
                if let Some(answer) = answer(&mut shared.lock().unwrap(), request) {
                    far.write_all(&answer).unwrap();
                }
            }
        });
        Self { path, bank, _ours: pair.slave }
    }
}

fn answer(bank: &mut Bank, [slave, function, a, b, c, d, ..]: [u8; 8]) -> Option<Vec<u8>> {
    let (at, value) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    // No other slave answers: the line is silent.
    bank.words.keys().find(|(known, _)| *known == slave)?;
    let mut answer = vec![slave, function];
    match function {
        3 => {
            let words: Option<Vec<u16>> = (at..at + value).map(|at| bank.words.get(&(slave, at)).copied()).collect();
            match words {
                Some(words) => {
                    answer.push(u8::try_from(words.len() * 2).unwrap());
                    answer.extend(words.iter().flat_map(|word| word.to_be_bytes()));
                }
                // Illegal data address.
                None => answer = vec![slave, 0x83, 2],
            }
        }
        6 => {
            bank.words.insert((slave, at), value);
            bank.writes.push((slave, at, value));
            answer.extend([a, b, c, d]);
        }
        _ => answer = vec![slave, function | 0x80, 1],
    }
    let mut check = crc(&answer);
    if bank.noisy == Some(slave) {
        check[0] ^= 1;
    }
    answer.extend(check);
    Some(answer)
}
