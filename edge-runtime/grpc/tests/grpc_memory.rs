//! Memory that all hostile clients together cost the DMI server. One test in its own process, whose memory is measured.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod grpc_support;

use std::time::{Duration, Instant};

use grpc_support::*;
use sampan_grpc::{Client, MAX_MESSAGE};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// Memory that this process has written to, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Sends as much as is taken within a short time.
async fn press(raw: &mut Raw, bytes: &[u8]) -> bool {
    matches!(timeout(Duration::from_millis(20), raw.0.write_all(bytes)).await, Ok(Ok(())))
}

#[test]
fn d12_memory_and_time_have_bounds() {
    run(async {
        let server = Server::start();
        serves(&server, SECOND * 10).await;
        let before = memory();

        // Half-received requests: on all connections that there may be and more, on every stream as much as is taken.
        let mut hostile = Vec::new();
        let start = Instant::now();
        for _ in 0..300 {
            hostile.push(Raw::connect(&server.socket()).await);
        }
        let piece = frame(DATA, 0, 0, &[b'x'; 16_000]);
        let mut begin = greeting();
        // Fills the table of header fields that a connection keeps (RFC 7541 section 6.2.1: literal with indexing).
        let mut table = head("/t.T/Count");
        for number in 0..60_u8 {
            table.extend([&[0x40, 2, b'x', number], &[50_u8][..], &[b'y'; 50]].concat());
        }
        for stream in (1..40).step_by(2) {
            begin.extend(frame(HEADERS, END_HEADERS, stream, &table));
            let mut first = vec![0, 0, 0x3f, 0, 0];
            first.resize(3_000, b'x');
            begin.extend(frame(DATA, 0, stream, &first));
        }
        let mut most = 0;
        for raw in &mut hostile {
            press(raw, &begin).await;
            for stream in [1_u8, 3, 5] {
                let mut piece = piece.clone();
                piece[8] = stream;
                press(raw, &piece).await;
            }
            most = most.max(memory() - before);
        }
        while start.elapsed() < SECOND {
            sleep(Duration::from_millis(50)).await;
            most = most.max(memory() - before);
        }
        assert!(most < 8 << 20, "half-received requests take {most} bytes");
        // A client that holds a place without finishing loses it.
        serves(&server, SECOND * 10).await;
        drop(hostile);

        // Answers that the client does not read.
        let before = memory();
        let mut hostile = Vec::new();
        let mut most = 0;
        for _ in 0..60 {
            let mut raw = Raw::greeted(&server.socket()).await;
            for stream in [1, 3, 5, 7] {
                press(&mut raw, &request(stream, "/t.T/Long", b"1000000")).await;
            }
            let window = frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
            press(&mut raw, &window).await;
            hostile.push(raw);
            most = most.max(memory().saturating_sub(before));
        }
        for _ in 0..10 {
            sleep(Duration::from_millis(50)).await;
            most = most.max(memory().saturating_sub(before));
        }
        assert!(most < 16 << 20, "unread answers take {most} bytes");
        serves(&server, SECOND * 10).await;
        // Room comes back when they are given up.
        let mut client = Client::new(server.socket());
        let start = Instant::now();
        let long = MAX_MESSAGE.to_string();
        while client.call("/t.T/Long", long.as_bytes(), PATIENCE).await.map(|answer| answer.len()) != Ok(MAX_MESSAGE) {
            assert!(start.elapsed() < SECOND * 30, "no room for answers");
            sleep(Duration::from_millis(100)).await;
        }
        drop(hostile);
    });
}
