//! Which host ports the next change has, and which pods wait for it.

use super::*;
use crate::pod::ports::HostPort;

fn forward(port: u16) -> Forward {
    let port = HostPort { ip: None, protocol: Protocol::Tcp, port, container_port: 80 };
    Forward { port, to: "10.0.0.2".parse().unwrap() }
}

#[test]
fn a_refused_pod_leaves_the_others_rules() {
    let mut ports = HostPorts::default();
    ports.want("a", vec![forward(1)]);
    ports.want("b", vec![forward(2)]);
    assert_eq!(ports.next(), Some(vec![forward(1), forward(2)]));
    assert_eq!(ports.next(), None, "one at a time");
    assert_eq!(ports.done(false), [""; 0], "it may be about either");
    assert_eq!(ports.next(), Some(vec![forward(1)]));
    assert_eq!(ports.done(true), ["a"]);
    assert_eq!(ports.next(), Some(vec![forward(1), forward(2)]));
    assert_eq!(ports.done(false), ["b"]);
    assert!(ports.has("a", &[forward(1)]) && ports.has("b", &[]));
    ports.want("a", Vec::new());
    assert!(!ports.has("a", &[]), "not yet");
    assert_eq!(ports.next(), Some(Vec::new()));
    ports.done(true);
    assert!(ports.has("a", &[]));
}

#[test]
fn pods_that_wait_share_one_run() {
    let (mut ports, mut runs) = (HostPorts::default(), 0);
    (1..=50).for_each(|n| ports.want(&format!("pod-{n}"), vec![forward(n)]));
    let mut known = Vec::new();
    while ports.next().is_some() {
        runs += 1;
        known.extend(ports.done(true));
    }
    assert_eq!((runs, known.len()), (1, 50));
    assert!(ports.has("pod-50", &[forward(50)]));
}

#[test]
fn refused_pod_among_many_is_found() {
    let (mut ports, mut runs) = (HostPorts::default(), 0);
    (1..=50).for_each(|n| ports.want(&format!("pod-{n}"), vec![forward(n)]));
    let mut refused = Vec::new();
    while let Some(all) = ports.next() {
        runs += 1;
        let applied = !all.contains(&forward(30));
        let told = ports.done(applied);
        refused.extend(told.into_iter().filter(|_| !applied));
    }
    assert_eq!(refused, ["pod-30"]);
    assert!((1..=50).filter(|n| *n != 30).all(|n| ports.has(&format!("pod-{n}"), &[forward(n)])));
    assert!(runs < 25, "{runs}");
}

#[test]
fn an_order_that_came_amid_a_refused_change_stays_the_newest() {
    let mut ports = HostPorts::default();
    ports.want("a", vec![forward(1)]);
    ports.want("b", vec![forward(2)]);
    ports.next();
    ports.want("a", Vec::new());
    assert_eq!(ports.done(false), [""; 0]);
    assert_eq!(ports.next(), Some(vec![forward(2)]));
    assert_eq!(ports.done(true), ["b", "a"], "nothing of a is there");
    assert_eq!(ports.next(), None);
}

#[test]
fn no_pod_is_let_in_before_the_loopback_is_guarded() {
    let mut ports = HostPorts::default();
    ports.hold("old", vec![forward(1)]);
    assert_eq!(ports.begin(), [forward(1)]);
    assert!(ports.has("a", &[]) && !ports.lets_in("a", &[]));
    ports.want("a", Vec::new());
    ports.want("b", vec![forward(2)]);
    ports.want("c", Vec::new());
    assert_eq!(ports.next(), None, "the start is under way");
    assert_eq!(ports.done(false), ["a", "c"], "told that it failed");
    assert!(!ports.lets_in("a", &[]));
    assert_eq!(ports.next(), Some(vec![forward(1), forward(2)]));
    ports.want("a", Vec::new());
    assert_eq!(ports.done(true), ["b", "a"]);
    assert!(ports.lets_in("a", &[]) && ports.lets_in("b", &[forward(2)]) && ports.lets_in("old", &[forward(1)]));
}

#[test]
fn refused_renewal_is_due_again_until_the_kernel_takes_the_rules() {
    let mut ports = HostPorts::default();
    ports.begin();
    ports.done(false);
    assert!(!ports.is_stale(), "the first pod writes all of it");
    ports.begin();
    ports.done(true);
    ports.renew();
    assert_eq!(ports.next(), Some(Vec::new()));
    ports.done(false);
    assert!(ports.is_stale());
    assert_eq!(ports.next(), None, "not at once");
    ports.renew();
    assert_eq!(ports.next(), Some(Vec::new()));
    assert!(!ports.is_stale(), "it is under way");
    ports.done(false);
    ports.want("a", vec![forward(1)]);
    assert_eq!(ports.next(), Some(vec![forward(1)]));
    assert_eq!(ports.done(false), ["a"]);
    assert!(ports.is_stale(), "neither is in the kernel");
    ports.want("b", vec![forward(2)]);
    assert_eq!(ports.next(), Some(vec![forward(2)]));
    assert_eq!(ports.done(true), ["b"]);
    assert!(!ports.is_stale(), "a pod's change has written all rules");
}

#[test]
fn renewal_amid_a_change_follows_it() {
    let mut ports = HostPorts::default();
    ports.renew();
    assert_eq!(ports.next(), None, "there is nothing to renew yet");
    ports.begin();
    ports.renew();
    assert_eq!(ports.next(), None, "the first change is under way");
    ports.done(true);
    assert_eq!(ports.next(), Some(Vec::new()));
    ports.done(true);
    assert_eq!(ports.next(), None, "once");
    assert_eq!(ports.done(true), [""; 0], "no change was under way");
}

#[test]
fn newer_forwards_replace_waiting_ones() {
    let mut ports = HostPorts::default();
    ports.want("a", vec![forward(1)]);
    ports.want("a", vec![forward(2)]);
    assert_eq!(ports.next(), Some(vec![forward(2)]));
    ports.done(true);
    assert_eq!(ports.next(), None);
}
