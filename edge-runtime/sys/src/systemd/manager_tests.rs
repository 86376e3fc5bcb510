//! Tests against a peer with the answers of systemd 252.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use super::super::Value;
use super::super::wire::tests::{EXISTS, REMOVED, SET, STARTED, bytes};
use super::*;

/// Accepts a client and sends `answers`, one for each call; an empty one closes the connection. Returns the client's
/// messages after its greeting.
fn peer(greeting: &'static [u8], answers: Vec<Vec<u8>>) -> (tempfile::TempDir, JoinHandle<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("private")).unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = vec![0; 1024];
        let count = stream.read(&mut said).unwrap();
        assert!(said[..count].starts_with(b"\0AUTH EXTERNAL 3"));
        stream.write_all(greeting).unwrap();
        let mut heard = Vec::new();
        for answer in answers {
            let mut call = vec![0; 4096];
            let mut count = stream.read(&mut call).unwrap();
            if call[..count] == *b"BEGIN\r\n" {
                count = stream.read(&mut call).unwrap();
            }
            heard.extend_from_slice(&call[..count]);
            if answer.is_empty() {
                break;
            }
            stream.write_all(&answer).unwrap();
        }
        heard
    });
    (dir, peer)
}

const LET_IN: &[u8] = b"OK 6e36f35d1032ac41db55d17aacc7ef895\r\n";

fn with<T>(dir: &tempfile::TempDir, use_it: impl AsyncFnOnce(Manager) -> T) -> Result<T, BusError> {
    smol::block_on(async { Ok(use_it(Manager::connect(&dir.path().join("private")).await?).await) })
}

fn contains(heard: &[u8], text: &str) -> bool {
    heard.windows(text.len()).any(|window| window == text.as_bytes())
}

const MEMORY: [Property; 2] = [
    Property { name: "DefaultDependencies", value: Value::Flag(false) },
    Property { name: "MemoryMax", value: Value::Number(1 << 20) },
];

#[test]
fn a_start_is_not_done_before_its_job() {
    let (dir, peer) = peer(LET_IN, vec![bytes(STARTED)]);
    let done = with(&dir, async |mut manager: Manager| manager.start("sampan-podx.slice", &MEMORY).await);
    assert!(matches!(done.unwrap(), Err(BusError::Lost(_))), "it waited until the connection was closed");
    peer.join().unwrap();
}

#[test]
fn a_job_that_ends_at_once_is_not_missed() {
    let (dir, peer) = peer(LET_IN, vec![[bytes(REMOVED), bytes(STARTED)].concat()]);
    let done = with(&dir, async |mut manager: Manager| manager.start("sampan-podx.slice", &MEMORY).await);
    assert!(done.unwrap().is_ok());
    let heard = peer.join().unwrap();
    assert!(contains(&heard, "sampan-podx.slice") && contains(&heard, "MemoryMax"));
}

#[test]
fn a_unit_that_is_there_is_taken_over() {
    let mut exists = bytes(EXISTS);
    let mut set = bytes(SET);
    // The number of the call they answer.
    (exists[20], set[20]) = (1, 2);
    let mut started = bytes(STARTED);
    started[20] = 3;
    let (dir, peer) = peer(LET_IN, vec![exists, set, [started, bytes(REMOVED)].concat()]);
    let done = with(&dir, async |mut manager: Manager| manager.start("sampan-podx.slice", &MEMORY).await);
    assert!(done.unwrap().is_ok());
    let heard = peer.join().unwrap();
    assert!(contains(&heard, "SetUnitProperties") && contains(&heard, "StartUnit\0"));
}

#[test]
fn refusals_say_why() {
    let mut exists = bytes(EXISTS);
    exists[20] = 1;
    let (dir, peer) = peer(LET_IN, vec![exists]);
    let done = with(&dir, async |mut manager: Manager| manager.set("sampan-podx.slice", &[]).await);
    let told = done.unwrap().unwrap_err().to_string();
    assert!(told.starts_with("systemd refused: Unit sampan-podx.slice was already loaded"), "{told}");
    assert!(told.ends_with("(org.freedesktop.systemd1.UnitExists)"), "{told}");
    peer.join().unwrap();
}

#[test]
fn failed_job_is_reported() {
    let removed = REMOVED.replace("04000000646f6e6500", "060000006661696c656400");
    let mut removed = bytes(&removed);
    removed[4] += 2;
    let (dir, peer) = peer(LET_IN, vec![[bytes(STARTED), removed].concat()]);
    let done = with(&dir, async |mut manager: Manager| manager.start("sampan-podx.slice", &MEMORY).await);
    let told = done.unwrap().unwrap_err().to_string();
    assert_eq!(told, "systemd's job for unit sampan-podx.slice ended as \"failed\"");
    peer.join().unwrap();
}

#[test]
fn refused_authentication_is_reported() {
    let (dir, peer) = peer(b"REJECTED EXTERNAL\r\n", Vec::new());
    let error = with(&dir, async |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "systemd does not let us in: it answered \"REJECTED EXTERNAL\"");
    peer.join().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let error = with(&dir, async |_| ()).unwrap_err().to_string();
    assert!(error.starts_with("systemd cannot be reached at /"), "{error}");
}

#[test]
fn garbage_and_a_lost_connection_are_different_errors() {
    let (dir, garbage) = peer(LET_IN, vec![b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()]);
    let done = with(&dir, async |mut manager: Manager| manager.stop("sampan-podx.slice").await);
    assert!(matches!(done.unwrap(), Err(BusError::Garbage(_))));
    garbage.join().unwrap();
    let (dir, closed) = peer(LET_IN, vec![Vec::new()]);
    let done = with(&dir, async |mut manager: Manager| manager.stop("sampan-podx.slice").await);
    assert!(matches!(done.unwrap(), Err(BusError::Lost(_))));
    closed.join().unwrap();
}
