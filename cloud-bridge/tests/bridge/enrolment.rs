//! Enrolment of boards with a claim token: E1 to E4 and E6 of the list of guarantees, over HTTPS and the API.

mod hostile;
mod many;
mod rights;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cloud_bridge::pki::claim::{self, Terms};
use cloud_bridge::pki::token::Token;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::support::fixture::{Cluster, TestBridge, twins, unique};
use crate::support::{join, tls_over};

/// A board: its key, its request, what it reports, and its address.
struct Board {
    csr: String,
    serial: String,
    address: Ipv4Addr,
}

impl Board {
    fn new(serial: &str) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
        Self { csr: STANDARD.encode(csr.der()), serial: serial.to_owned(), address: Ipv4Addr::LOCALHOST }
    }

    /// The answer to the board's request. A bridge closes a connection that has not finished within 20 s, which is short for many
    /// boards on a busy host: this one asks again, as a board does.
    async fn ask(&self, bridge: &TestBridge, token: &str) -> (u16, Value) {
        for _ in 0..5 {
            if let Some(answer) = self.ask_once(bridge, token).await {
                return answer;
            }
        }
        panic!("board {} has no answer", self.serial);
    }

    async fn ask_once(&self, bridge: &TestBridge, token: &str) -> Option<(u16, Value)> {
        let hardware = json!({"serial": self.serial, "mac": [], "model": "test", "machineId": ""});
        let body = json!({"token": token, "hardware": hardware, "csr": self.csr}).to_string();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((self.address, 0))).unwrap();
        let mut stream = tls_over(socket.connect(bridge.address).await.unwrap(), &bridge.ca, None).await.ok()?;
        let head = format!("POST /v1/enrol HTTP/1.1\r\nHost: bridge\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        // The server may close without a TLS goodbye.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap()))
    }
}

async fn token(cluster: &Cluster, bridge: &TestBridge, prefix: &str, uses: usize, auto: bool) -> Token {
    let pattern = format!("{prefix}-{{serial}}").parse().unwrap();
    let labels = BTreeMap::from([("sampan.dev/site".to_owned(), "hall-3".to_owned())]);
    let terms = Terms { pattern, uses, auto, labels };
    let hour = Duration::from_secs(3600);
    claim::create(&cluster.client, &bridge.fingerprint, terms, hour, Timestamp::now()).await.unwrap()
}

fn requests(cluster: &Cluster) -> Api<CertificateSigningRequest> {
    Api::all(cluster.client.clone())
}

/// What `kubectl certificate approve|deny` writes.
async fn decide(cluster: &Cluster, request: &Value, kind: &str) {
    let condition = json!({"type": kind, "status": "True", "reason": "Test", "message": "by a person"});
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    let name = request["request"].as_str().unwrap();
    requests(cluster).patch_approval(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn approved_board_gets_the_name_of_its_serial_number() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let prefix = unique("gw");
    let token = token(&cluster, &bridge, &prefix, 2, false).await.text();
    let (board, denied) = (Board::new("1000ABCD"), Board::new("2000"));
    let node = format!("{prefix}-1000abcd");

    let (code, waits) = board.ask(&bridge, &token).await;
    assert_eq!((code, &waits["node"], &waits["retrySeconds"]), (202, &json!(node), &json!(30)), "{waits}");
    assert_eq!(board.ask(&bridge, &token).await, (202, waits.clone()), "it asks again");
    assert!(cluster.nodes().get_opt(&node).await.unwrap().is_none(), "nothing is a node before the approval");
    decide(&cluster, &waits, "Approved").await;
    let (code, joined) = board.ask(&bridge, &token).await;
    assert_eq!((code, &joined["node"]), (200, &json!(node)), "{joined}");
    assert_eq!(joined["labels"], json!({"sampan.dev/site": "hall-3"}));
    let annotations = cluster.nodes().get(&node).await.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations["sampan.dev/hardware"].len(), 64);
    let (code, again) = board.ask(&bridge, &token).await;
    assert_eq!((code, &again["certificate"]), (200, &joined["certificate"]), "a lost answer is repeated");

    let (_, waits) = denied.ask(&bridge, &token).await;
    decide(&cluster, &waits, "Denied").await;
    let (code, refused) = denied.ask(&bridge, &token).await;
    assert_eq!(code, 403, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("by a person"), "{refused}");
    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn e1_name_stays_with_its_board_whatever_auto_says() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let prefix = unique("same");
    let token = token(&cluster, &bridge, &prefix, 9, true).await.text();
    let node = format!("{prefix}-7-7");
    let (code, joined) = Board::new("7-7").ask(&bridge, &token).await;
    assert_eq!((code, &joined["node"]), (200, &json!(node)), "new names are approved at once: {joined}");

    // Another serial number that gives the same name.
    let other = Board::new("7.7");
    let (code, taken) = other.ask(&bridge, &token).await;
    assert_eq!((code, &taken["reason"]), (409, &json!("NameTaken")), "{taken}");
    // The same serial number with another key: a new card, or a board that only says so.
    let (code, waits) = Board::new("7-7").ask(&bridge, &token).await;
    assert_eq!(code, 202, "a person decides: {waits}");

    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
    let (code, joined) = other.ask(&bridge, &token).await;
    assert_eq!((code, &joined["node"]), (200, &json!(node)), "{joined}");

    // A node that joined with a token of its own is not for boards to take.
    let named = format!("{prefix}-8");
    let single = bridge.token(&cluster, &named).await;
    join(bridge.address, &bridge.ca, &single, &named, &format!("system:node:{named}")).await.expect("joined");
    assert_eq!(Board::new("8").ask(&bridge, &token).await.0, 409);
    for name in [node, named] {
        cluster.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn e2_e3_uses_of_two_bridges_are_one_count_and_a_deleted_token_is_refused() {
    let cluster = Cluster::open().await;
    let (one, two) = twins();
    let bridges = [TestBridge::with(&cluster, one).await, TestBridge::with(&cluster, two).await];
    let prefix = unique("count");
    let token = token(&cluster, &bridges[0], &prefix, 2, false).await;
    let text = token.text();
    let boards = [Board::new("1"), Board::new("2"), Board::new("3"), Board::new("4")];
    let asked = futures::join!(
        boards[0].ask(&bridges[0], &text),
        boards[1].ask(&bridges[1], &text),
        boards[2].ask(&bridges[0], &text),
        boards[3].ask(&bridges[1], &text)
    );
    let mut codes = [asked.0.0, asked.1.0, asked.2.0, asked.3.0];
    let first = boards.iter().zip(codes).find(|(_, code)| *code == 202).unwrap().0;
    codes.sort_unstable();
    assert_eq!(codes, [202, 202, 403, 403]);
    let (code, waits) = first.ask(&bridges[1], &text).await;
    assert_eq!(code, 202, "a counted board goes on, at each bridge: {waits}");
    // The API deletes requests that stay undecided.
    let name = waits["request"].as_str().unwrap().to_owned();
    requests(&cluster).delete(&name, &DeleteParams::default()).await.unwrap();
    assert_eq!(first.ask(&bridges[0], &text).await, (202, waits), "and costs no use then");

    claim::delete(&cluster.client, &token.name()).await.unwrap();
    let (code, refused) = first.ask(&bridges[1], &text).await;
    assert_eq!(code, 401, "{refused}");
}

#[tokio::test]
async fn e4_claim_token_is_no_join_token_and_no_identity() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let token = token(&cluster, &bridge, &unique("only"), 1, true).await.text();
    let node = unique("only");
    let refused = join(bridge.address, &bridge.ca, &token, &node, "x").await.err().expect("refused");
    assert_eq!(refused.0, 400, "{}", refused.1);
    let single = bridge.token(&cluster, &node).await;
    assert_eq!(Board::new("1").ask(&bridge, &single).await.0, 400, "nor the other way round");
    let known = claim::list(&cluster.client).await.unwrap();
    assert!(known.iter().all(|one| one.used == 0 || !one.name_pattern.starts_with("only")), "{known:?}");
}

#[tokio::test]
async fn e6_new_boards_of_one_address_are_limited() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let token = token(&cluster, &bridge, &unique("many"), 50, false).await.text();
    let mut codes = Vec::new();
    for serial in 1..=12 {
        codes.push(Board::new(&serial.to_string()).ask(&bridge, &token).await.0);
    }
    assert_eq!((codes[0], codes[9], codes[11]), (202, 202, 429), "{codes:?}");
}

#[tokio::test]
async fn request_that_was_changed_is_not_signed() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let prefix = unique("changed");
    let token = token(&cluster, &bridge, &prefix, 1, false).await.text();
    let board = Board::new("1");
    let (_, waits) = board.ask(&bridge, &token).await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"sampan.dev/node": "harmless"}}}));
    requests(&cluster).patch(waits["request"].as_str().unwrap(), &PatchParams::default(), &patch).await.unwrap();
    decide(&cluster, &waits, "Approved").await;
    let (code, refused) = board.ask(&bridge, &token).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("RequestChanged")), "{refused}");
}
