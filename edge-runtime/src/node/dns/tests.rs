//! Which namespaces the bridge is told, and when the loop is woken for the helper.

use edge_protocol::message::ToCloud;

use super::*;
use crate::link::LinkHandle;
use crate::node::Node;
use crate::node::bench::Bench;

#[test]
fn namespace_of_a_query_is_followed_over_a_restart() {
    let mut bench = Bench::new();
    let Node { dns, cx, services, .. } = &mut bench.node;
    dns.asked(cx, services, "not.a.label");
    assert!(!dns.unsent && !services.has_other_names(), "no namespace has such a name");
    dns.asked(cx, services, "shop");
    assert!(dns.unsent && services.has_other_names());
    let mut restarted = Dns::default();
    assert_eq!(restarted.interests(cx), ["shop"]);
    restarted.asked(cx, services, "shop");
    assert!(!restarted.unsent, "the hello had it");
}

#[test]
fn interest_waits_for_a_bridge_that_takes_it() {
    let mut bench = Bench::new();
    let Node { dns, cx, services, .. } = &mut bench.node;
    let link = LinkHandle::for_tests(&cx.paths, &[INTERESTS]);
    link.says();
    dns.asked(cx, services, "shop");
    dns.connected(services, &[INTERESTS.to_owned()]);
    dns.send_interests(cx);
    assert!(dns.unsent, "there is no connection");
    cx.link = Some(link.clone());
    dns.connected(services, &[]);
    dns.send_interests(cx);
    assert!(dns.unsent && link.says().is_empty(), "the bridge is older");
    dns.connected(services, &[INTERESTS.to_owned()]);
    dns.send_interests(cx);
    assert_eq!(link.says(), [ToCloud::Interests { namespaces: vec!["shop".to_owned()] }]);
    dns.send_interests(cx);
    assert!(!dns.unsent && link.says().is_empty(), "once");
}

#[test]
fn loop_is_not_woken_for_a_helper_that_does_not_run() {
    let mut bench = Bench::new();
    let Node { dns, services, .. } = &mut bench.node;
    services.names_changed();
    dns.not_before = Some(Mono(1));
    assert_eq!(dns.wake(services), None);
}
