//! NetworkPolicies that nodes receive.

use super::*;
use crate::bridge::told::groups::policy_views;

const POLICIES: Wants =
    Wants { services: false, routes: false, policies: true, devices: false, rules: false, api: false, csi: false };

/// The one group of a pod's namespace.
fn policies() -> ObjectKey {
    policy_views("ns", ServiceScope::Namespaces)
}

#[test]
fn policies_go_to_nodes_that_want_them_before_the_pods_that_they_are_for() {
    let mut world = world(&["a", "b"]);
    let _ = world.wants("a", POLICIES, None);
    assert_eq!(words(&world.pod_applied(pod("a", "p", &[]))), ["watch all for a"]);
    assert_eq!(words(&world.pod_applied(pod("b", "q", &[]))), ["set b q uid-q"], "it does not want to know");
    let told = words(&world.group_present(&policies(), views(&[("deny", "u1")])));
    assert_eq!(told, ["set a deny u1", "set a p uid-p"]);
    assert_eq!(words(&world.wants("b", POLICIES, None)), ["set b deny u1"]);
    assert!(world.wants("b", POLICIES, None).is_empty(), "it says so with each connection");
    let told = words(&world.group_present(&policies(), Group::new()));
    assert_eq!(told, ["withdraw a deny u1", "withdraw b deny u1"]);
    assert!(words(&world.pod_deleted("a", &key("Pod", "p"), "uid-p")).iter().all(|word| !word.starts_with("unwatch")));
    assert_eq!(words(&world.wants("b", Wants::default(), None)), ["unwatch all"]);
    // A site has one group for all; a cluster does not, whatever Services nodes get.
    assert_eq!(policy_views("ns", ServiceScope::Site).namespace, "");
    assert_eq!(policy_views("ns", ServiceScope::All).namespace, "ns");
}

#[test]
fn a_list_waits_for_policies_and_services_do_not_stand_for_them() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    let _ = world.wants("a", POLICIES, None);
    let told = words(&world.seed("a", round, vec![pod("a", "p", &[])], None));
    assert_eq!(told, ["watch all for a"]);
    let told = words(&world.group_present(&policies(), Group::new()));
    assert_eq!(told, ["set a p uid-p", "listed a 1"]);
}

#[test]
fn held_policies_are_withdrawn_unless_sent_since() {
    let mut world = world(&["a"]);
    let _ = world.wants("a", POLICIES, None);
    let _ = world.pod_applied(pod("a", "p", &[]));
    let view = key("PolicyView", "deny");
    let told = Told::new(object("PolicyView", "deny", "u1"));
    let _ = world.group_present(&policies(), Group::from([(view.clone(), told)]));
    assert!(world.unlisted("a", &view, "u1").is_empty(), "it was sent since");
    assert_eq!(words(&world.unlisted("a", &view, "u0")), ["withdraw a deny u0"], "an earlier one of that name");
}
