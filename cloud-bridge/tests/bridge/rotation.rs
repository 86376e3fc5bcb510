//! A rotation of the authority: a node learns to trust the new one over its link, and then the old one is gone.

use std::time::{Duration, SystemTime};

use cloud_bridge::bridge::TRUST_ANNOTATION;
use cloud_bridge::pki::authority::Authority;
use cloud_bridge::pki::rotation::{Pair, Rotation, Trust};
use edge_protocol::message::RenewAnswer;
use kube::ResourceExt;

use crate::support::fixture::{Cluster, TestBridge, eventually, unique};
use crate::support::{Edge, Identity, Store, ask};

fn again(authority: &Authority) -> Authority {
    Authority::from_pem("test", &authority.certificate_pem(), &authority.key_pem()).unwrap()
}

async fn is_marked(cluster: &Cluster, node: &str, mark: &str) -> bool {
    let node = cluster.nodes().get(node).await.unwrap();
    node.annotations().get(TRUST_ANNOTATION).is_some_and(|found| found == mark)
}

#[tokio::test]
async fn node_renews_for_a_new_authority_and_outlasts_the_old() {
    let cluster = Cluster::open().await;
    let (old, new) = (Authority::create("old").unwrap(), Authority::create("new").unwrap());
    let bridge = TestBridge::with(&cluster, again(&old)).await;
    let name = unique("rotated");
    let (first, edge) = bridge.edge(&cluster, &name).await;
    assert!(edge.terms.expect("terms").left_ms > 86_400_000);
    drop(edge);
    bridge.kill();

    // The bridge starts again with both: the node connects as before, and is told to renew within a minute.
    let pair = Pair { certificate: new.certificate_pem(), key: new.key_pem() };
    let rotation = Rotation::begin(pair, SystemTime::now(), Duration::ZERO, Duration::from_secs(60));
    let both = Authority::in_rotation("test", Some(rotation.clone()), || Ok(again(&old))).unwrap();
    let bridge = TestBridge::with(&cluster, both).await;
    let mut edge = bridge.connect(&first, Store::default()).await;
    edge.until("terms", |edge| edge.terms.is_some()).await;
    assert!(edge.terms.expect("terms").left_ms <= 90_000, "{:?}", edge.terms);
    let old_mark = rotation.mark(Trust::Old);
    eventually("its mark", || is_marked(&cluster, &name, &old_mark)).await;
    let (answer, key) = edge.renew("edge").await;
    let RenewAnswer::Issued { certificate, authorities } = answer else { panic!("{answer:?}") };
    let trusted: Vec<Vec<u8>> = authorities.into_iter().map(|one| one.0).collect();
    assert_eq!(trusted, [old.certificate().to_vec(), new.certificate().to_vec()]);
    let second = first.renewed(certificate.0, key);
    let (code, text) = standing(&bridge, &second).await;
    assert_eq!(code, 200, "{text}");
    let both_mark = rotation.mark(Trust::Both);
    eventually("its new mark", || is_marked(&cluster, &name, &both_mark)).await;
    drop(edge);
    bridge.kill();

    // The old one is gone: the renewed certificate counts, the first does not.
    // A join may have been a little ahead of the clock.
    let finished = rotation.finish(SystemTime::now(), Duration::from_secs(10));
    let after = Authority::in_rotation("test", Some(finished), || panic!("the new one is in the rotation")).unwrap();
    let bridge = TestBridge::with(&cluster, after).await;
    assert_eq!(&bridge.ca, new.certificate());
    let [mut first, mut second] = [first, second];
    (first.ca, second.ca) = (bridge.ca.clone(), bridge.ca.clone());
    let mut edge = bridge.connect(&second, Store::default()).await;
    edge.until("terms", |edge| edge.terms.is_some()).await;
    assert!(edge.terms.expect("terms").left_ms <= 100_000, "it still trusts the old one: {:?}", edge.terms);
    assert!(Edge::connect(bridge.address, &first, &name, Store::default()).await.is_err());
}

#[tokio::test]
async fn renewal_counts_at_a_bridge_that_does_not_know_of_the_rotation_yet() {
    let cluster = Cluster::open().await;
    let (old, new) = (Authority::create("old").unwrap(), Authority::create("new").unwrap());
    let pair = Pair { certificate: new.certificate_pem(), key: new.key_pem() };
    let rotation = Rotation::begin(pair, SystemTime::now(), Duration::from_secs(600), Duration::from_secs(60));
    let both = Authority::in_rotation("test", Some(rotation), || Ok(again(&old))).unwrap();
    let restarted = TestBridge::with(&cluster, both).await;
    let earlier = TestBridge::with(&cluster, again(&old)).await;
    let (first, mut edge) = restarted.edge(&cluster, &unique("between")).await;
    let left = edge.terms.expect("terms").left_ms;
    assert!((600_000..=690_000).contains(&left), "it waits for the other bridge: {left}");
    let (answer, key) = edge.renew("edge").await;
    let RenewAnswer::Issued { certificate, authorities } = answer else { panic!("{answer:?}") };
    assert_eq!(authorities.len(), 2);
    let second = first.renewed(certificate.0, key);
    for bridge in [&restarted, &earlier] {
        let (code, text) = standing(bridge, &second).await;
        assert_eq!(code, 200, "{text}");
    }
}

/// The bridge's answer to whether this certificate is valid.
async fn standing(bridge: &TestBridge, identity: &Identity) -> (u16, String) {
    ask("POST", bridge.address, &bridge.ca, Some(identity), "/v1/identity", "Content-Length: 0\r\n").await
}
