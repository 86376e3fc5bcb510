//! Which namespaces the bridge is told, and when the loop is woken for the helper.

use std::process::Command;
use std::rc::Rc;

use edge_protocol::message::ToCloud;
use nix::sched::{CloneFlags, unshare};

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

#[test]
fn refused_link_is_made_later() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let ip = |words: &[&str]| assert!(Command::new("ip").args(words).status().unwrap().success(), "{words:?}");
    // A thread of its own, whose namespace ends with it.
    let work = move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let mut bench = Bench::new();
        let mut config = (*bench.node.cx.config).clone();
        (config.network.mode, config.network.bridge) = (NetworkMode::Cni, "late".to_owned());
        bench.node.cx.config = Rc::new(config);
        ip(&["link", "add", "dns-late", "type", "veth", "peer", "name", "other"]);
        let Node { dns, cx, services, launch, .. } = &mut bench.node;
        dns.answers = true;
        assert_eq!(dns.wanted(cx, launch, services), Some(Vec::new()), "a link of another kind has the name");
        let again = dns.again.map(|(at, _)| at);
        assert!(again > Some(cx.mono()) && dns.wake(services) == again);
        ip(&["link", "delete", "dns-late"]);
        assert_eq!(dns.wanted(cx, launch, services), Some(Vec::new()), "not at once");
        dns.again = Some((Mono(0), 1));
        assert!(dns.wanted(cx, launch, services).is_some_and(|addresses| !addresses.is_empty()));
        assert_eq!(dns.wake(services), None);
    };
    std::thread::spawn(work).join().unwrap();
}
