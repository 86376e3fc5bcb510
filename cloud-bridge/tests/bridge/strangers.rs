//! Strangers at the link's port: slow ones keep nobody out.

use std::time::{Duration, Instant};

use cloud_bridge::bridge::Settings;
use cloud_bridge::pki::authority::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::fixture::{Cluster, TestBridge, unique};
use crate::support::{Store, tls};

/// As many as there are places for handshakes.
const SLOW: usize = 256;

/// What a TLS 1.2 or 1.3 client sends first: five bytes of a record that announces more.
const HALF_A_HELLO: &[u8] = &[22, 3, 1, 2, 0, 1];

#[tokio::test]
async fn slow_connections_keep_no_node_waiting() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (mut silent, mut talking) = (Vec::new(), Vec::new());
    for number in 0..SLOW {
        match number % 3 {
            0 => silent.push(TcpStream::connect(bridge.address).await.unwrap()),
            1 => {
                let mut socket = TcpStream::connect(bridge.address).await.unwrap();
                socket.write_all(HALF_A_HELLO).await.unwrap();
                silent.push(socket);
            }
            _ => {
                let mut stream = tls(bridge.address, &bridge.ca, None).await.unwrap();
                stream.write_all(b"GET /v1/li").await.unwrap();
                talking.push(stream);
            }
        }
    }
    // Joining and connecting from the same address, at the worst moment and later.
    let mut times = Vec::new();
    for _ in 0..20 {
        let (node, asked) = (unique("slow"), Instant::now());
        let token = bridge.token(&cluster, &node).await;
        let user = format!("system:node:{node}");
        let identity = crate::support::join(bridge.address, &bridge.ca, &token, &node, &user).await.unwrap();
        drop(bridge.connect(&identity, Store::default()).await);
        times.push(asked.elapsed());
    }
    times.sort();
    // A debug build beside other tests; one that waits for a slow connection waits for twenty.
    assert!(times[19] < Duration::from_secs(4), "{times:?}");
    assert!(times[10] < Duration::from_secs(1), "{times:?}");
    drop((silent, talking));
}

#[tokio::test]
async fn what_is_no_link_is_one_request() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::with_settings(&cluster, Authority::create("one").unwrap(), Settings::default()).await;
    let mut stream = tls(bridge.address, &bridge.ca, None).await.unwrap();
    let asked = b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\nGET /nothing HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(asked).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the connection goes on");
    assert_eq!(String::from_utf8_lossy(&answer).matches("HTTP/1.1 404").count(), 1);
}
