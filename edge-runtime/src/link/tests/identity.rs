//! Certificates over time: renewal, and clocks that are off by years, with real handshakes.

use super::server::{Authority, Server};
use super::{Node, run};
use crate::link::identity::Identity;
use crate::link::tls::Time;
use edge_protocol::version::IdentityTerms;
use smol::Timer;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const OVERDUE: IdentityTerms = IdentityTerms { now_ms: 0, left_ms: 0, life_ms: 1_000 };

async fn until(reached: impl Fn() -> bool) {
    while !reached() {
        Timer::after(Duration::from_millis(5)).await;
    }
}

#[test]
fn g24_a_new_certificate_is_proven_and_then_takes_over() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        server.set_terms(OVERDUE);
        let mut node = Node::start(&ex, authority.identity("edge-1", server.address()), 16);
        node.until("connected").await;
        let first = server.look(|seen| seen.certificate.clone());
        let stored =
            || Identity::load(&node.paths).expect("reads").expect("is there").certificate().expect("pem").to_vec();
        until(|| stored() != first).await;
        let second = stored();
        assert_eq!(
            server.look(|seen| seen.proven.clone()),
            std::slice::from_ref(&second),
            "proven before it was stored"
        );
        assert!(node.handle.is_connected(), "nothing was cut for it");
        assert_eq!(Identity::load_next(&node.paths), None);
        server.cut();
        node.until("connected").await;
        assert_eq!(server.look(|seen| seen.certificate.clone()), second, "the next connection is made with it");
    });
}

#[test]
fn g24_a_certificate_that_is_not_taken_replaces_nothing() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        server.set_terms(OVERDUE);
        server.set_signer(Authority::new());
        let identity = authority.identity("edge-1", server.address());
        let mut node = Node::start(&ex, identity.clone(), 16);
        node.until("connected").await;
        // Asked for again after a pause: the first was given up.
        until(|| server.look(|seen| seen.renewals) >= 2).await;
        assert_eq!(Identity::load(&node.paths).expect("reads"), Some(identity));
        assert!(server.look(|seen| seen.proven.is_empty()) && node.handle.is_connected());
    });
}

#[test]
fn g24_refused_node_uses_a_later_join_without_a_restart() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        // An identity that this bridge's authority has not signed: as good as expired.
        let mut stale = Authority::new().identity("edge-1", server.address());
        let fresh = authority.identity("edge-1", server.address());
        stale.ca.clone_from(&fresh.ca);
        let mut node = Node::start(&ex, stale, 16);
        let refused = node.until("refused").await;
        assert_eq!(refused, "refused Forbidden");
        fresh.save(&node.paths).expect("joined again");
        node.until("connected").await;
    });
}

#[test]
fn node_that_missed_a_new_authority_uses_a_later_join() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let mut node = Node::start(&ex, Authority::new().identity("edge-1", server.address()), 16);
        let why = node.until("disconnected").await;
        assert!(why.contains("join again with a fresh token"), "{why}");
        authority.identity("edge-1", server.address()).save(&node.paths).expect("joined again");
        node.until("connected").await;
    });
}

static CLOCK: AtomicU64 = AtomicU64::new(0);

fn clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(CLOCK.load(Ordering::Relaxed))
}

#[test]
fn g25_a_clock_in_1970_connects_and_one_far_ahead_does_once_it_is_right() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let time = Time { clock, ..Time::default() };
        CLOCK.store(60, Ordering::Relaxed);
        let mut node = Node::start_at(&ex, authority.identity("edge-1", server.address()), 16, time.clone());
        node.until("connected").await;
        drop(node);
        // Past the end of the bridge's certificate.
        CLOCK.store(2_100_000_000, Ordering::Relaxed);
        let mut ahead = Node::start_at(&ex, authority.identity("edge-1", server.address()), 16, time);
        let why = ahead.until("disconnected").await;
        assert!(why.contains("xpired"), "{why}");
        assert!(!ahead.log.iter().any(|line| line.starts_with("refused")), "nobody refused this node");
        CLOCK.store(1_800_000_000, Ordering::Relaxed);
        ahead.until("connected").await;
    });
}

/// A bridge whose clock was decades ahead has sent its time to this device, which has no clock battery.
#[test]
fn g25_what_a_bridge_far_ahead_has_said_locks_nobody_out() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let told = SystemTime::UNIX_EPOCH + Duration::from_secs(3_000_000_000);
        let time = Time { floor: told, clock: || SystemTime::UNIX_EPOCH, synchronized: || false };
        let mut node = Node::start_at(&ex, authority.identity("edge-1", server.address()), 16, time);
        node.until("connected").await;
    });
}
