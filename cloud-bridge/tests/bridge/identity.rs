//! Joining and connecting: who is let in, and as whom.

use cloud_bridge::pki::token;
use edge_protocol::join_token::{self, Place};
use jiff::Timestamp;
use std::time::Duration;

use crate::support::fixture::{Cluster, TestBridge, unique};
use crate::support::{self, Edge, Store, join};

#[tokio::test]
async fn g22_a_token_is_good_once_for_one_node_and_for_a_time() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("join");
    let own = format!("system:node:{node}");
    let text = bridge.token(&cluster, &node).await;

    let (ca, address, fingerprint) = (bridge.ca.clone(), bridge.address, bridge.fingerprint.clone());
    let other = join(address, &ca, &text, "other", "x").await.err().expect("refused");
    assert_eq!(other.0, 403, "{}", other.1);
    assert!(other.1.contains("another node"), "{}", other.1);
    let asks = join(address, &ca, &text, &node, "system:node:other").await.err().expect("refused");
    assert_eq!(asks.0, 400, "{}", asks.1);

    let identity = join(address, &ca, &text, &node, &own).await.expect("joined after all");
    assert_eq!(identity.ca, ca);
    let second = join(address, &ca, &text, &node, &own).await.err().expect("refused");
    assert_eq!(second.0, 401, "{}", second.1);
    assert!(second.1.contains("used already"), "{}", second.1);

    let earlier = Timestamp::now() - jiff::SignedDuration::from_hours(2);
    let hour = Duration::from_secs(3600);
    // Made two hours ago.
    let old = token::create(&cluster.client, &fingerprint, &node, hour, earlier).await.unwrap().text();
    let expired = join(address, &ca, &old, &node, &own).await.err().expect("refused");
    assert!(expired.0 == 401 && expired.1.contains("expired"), "{} {}", expired.0, expired.1);
    bridge.kill();
}

#[tokio::test]
async fn unused_tokens_are_listed_and_a_deleted_one_is_refused() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("listed");
    let (first, second) = (bridge.token(&cluster, &node).await, bridge.token(&cluster, &node).await);
    let unused = || async {
        let all = token::list(&cluster.client).await.unwrap();
        all.into_iter().filter(|one| one.node == node).map(|one| one.name).collect::<Vec<_>>()
    };
    let name = |text: &str| token::Token::parse(text).unwrap().name();
    let listed = unused().await;
    assert!(listed.len() == 2 && listed.contains(&name(&first)) && listed.contains(&name(&second)), "{listed:?}");

    let deleted = token::delete(&cluster.client, &name(&first)).await.unwrap();
    assert_eq!(deleted.node, node);
    let own = format!("system:node:{node}");
    let refused = join(bridge.address, &bridge.ca, &first, &node, &own).await.err().expect("refused");
    assert_eq!(refused.0, 401, "{}", refused.1);
    let again = token::delete(&cluster.client, &name(&first)).await.unwrap_err().to_string();
    assert!(again.contains("no unused join token"), "{again}");

    let place = Place { node: node.clone(), bridges: vec!["https://b:1".into()] };
    let whole = join_token::with_place(&second, &place);
    join(bridge.address, &bridge.ca, &whole, &node, &own).await.expect("an older node sends all of the text");
    assert!(unused().await.is_empty(), "a used token is not listed");
}

#[tokio::test]
async fn g22_two_uses_at_once_have_one_winner() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("race");
    let text = bridge.token(&cluster, &node).await;
    let attempt = || join(bridge.address, &bridge.ca, &text, &node, "x");
    let outcomes = futures::join!(attempt(), attempt(), attempt());
    let winners = [outcomes.0.is_ok(), outcomes.1.is_ok(), outcomes.2.is_ok()].iter().filter(|ok| **ok).count();
    assert_eq!(winners, 1);
}

#[tokio::test]
async fn g23_a_node_is_what_its_certificate_says() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let identity = bridge.join(&cluster, &unique("real")).await;
    let mut liar = Edge::connect(bridge.address, &identity, "someone-else", Store::default()).await.unwrap();
    let why = liar.until_ended().await;
    assert!(why.contains("WrongNode"), "{why}");

    let stream = support::tls(bridge.address, &bridge.ca, None).await.unwrap();
    let stream = async_tungstenite::tokio::TokioAdapter::new(stream);
    let error = async_tungstenite::client_async("wss://localhost/v1/link", stream).await.err().unwrap();
    assert!(error.to_string().contains("401"), "{error}");
}
