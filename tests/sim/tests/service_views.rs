//! Services that nodes receive, each case with the words of its guarantee. The random runs of `seeds` check that after
//! any faults a node has exactly what the API implies: nothing old, nothing of others, nothing missing.

use cloud_bridge::bridge::ServiceScope;
use edge_protocol::message::ObjectDigest;
use sampan_sim::views::is_view;
use sampan_sim::world::{Options, World};

const SCOPES: [ServiceScope; 2] = [ServiceScope::Namespaces, ServiceScope::Site];
const WEB: (&str, &str) = ("ns", "web");

/// A world in sync, with Services, one of which has endpoints that are not pods.
fn calm(scope: ServiceScope, bridges: usize) -> World {
    let mut world = World::calm(1, Options { bridges, services: Some(scope), ..Options::plain() });
    for at in [WEB, ("ns", "db"), ("other", "web"), ("default", "kubernetes"), ("kube-system", "kube-dns")] {
        world.api.set_service(at);
    }
    world.api.set_slices(WEB);
    world.api.set_slices(("default", "kubernetes"));
    world.settle();
    world
}

fn held(world: &World) -> Vec<ObjectDigest> {
    let mut held = world.device.store().held().expect("reads");
    held.retain(|object| is_view(&object.key));
    held.sort();
    held
}

#[test]
fn s01_a_node_holds_what_its_scope_says() {
    let count = SCOPES.map(|scope| held(&calm(scope, 1)).len());
    assert_eq!(count, [4 + 2, 5 + 2]);
}

/// Their Service lives on, and so does its uid.
#[test]
fn s01_endpoints_that_come_again_are_told_again() {
    for scope in SCOPES {
        let mut world = calm(scope, 1);
        let before = held(&world).len();
        for _ in 0..3 {
            world.api.delete_slices(WEB);
            world.settle();
            assert_eq!(held(&world).len(), before - 1);
            world.api.set_slices(WEB);
            world.settle();
            assert_eq!(held(&world).len(), before);
        }
    }
}

#[test]
fn s01_a_service_that_another_proxy_has_served_is_told_again() {
    for scope in SCOPES {
        let mut world = calm(scope, 1);
        let before = held(&world).len();
        world.api.serve_elsewhere(WEB);
        world.settle();
        assert_eq!(held(&world).len(), before - 2);
        world.api.serve_elsewhere(WEB);
        world.settle();
        assert_eq!(held(&world).len(), before);
    }
}

/// The last pod is deleted while the node is offline and the bridge knows neither; the next pod finds its Services.
#[test]
fn s01_a_node_without_pods_holds_no_services_and_its_next_pod_finds_them() {
    for scope in SCOPES {
        for restart in [false, true] {
            let mut world = calm(scope, 1);
            let before = held(&world);
            world.away();
            world.api.delete_all();
            if restart {
                world.restart_bridge(0);
            }
            world.settle();
            assert_eq!(held(&world), []);
            world.api.create_pod("a", Vec::new());
            world.settle();
            assert_eq!(held(&world), before);
        }
    }
}

#[test]
fn s01_a_replaced_service_and_its_endpoints_are_the_new_ones() {
    let mut world = calm(ServiceScope::Site, 1);
    let before = held(&world);
    for away in [false, true] {
        if away {
            world.away();
        }
        world.api.delete_service(WEB);
        world.api.set_service(WEB);
        world.settle();
        assert_eq!(held(&world).len(), before.len());
        assert_ne!(held(&world), before);
    }
}

/// An API server that has just started refuses everything: nodes keep what they hold, and nothing is sent again.
#[test]
fn s04_a_refusal_takes_nothing_away() {
    for scope in SCOPES {
        let mut world = calm(scope, 1);
        let (before, seq) = (held(&world), world.bridges[0].state.seq());
        world.bridges[0].refuse_services();
        world.run();
        assert_eq!((held(&world), world.bridges[0].state.seq()), (before, seq));
    }
}

#[test]
fn s04_lists_cut_short_and_other_clusters_take_nothing_away() {
    let services = Some(ServiceScope::Namespaces);
    let mut world = World::calm(4, Options { foreign: true, services, ..Options::plain() });
    world.api.set_service(WEB);
    world.settle();
    let before = held(&world);
    assert!(!before.is_empty());
    for _ in 0..3 {
        world.bridges[0].relist(&world.api, true);
        world.run();
        world.to_foreign();
        assert_eq!(held(&world), before);
    }
}

/// As with pods and ConfigMaps: what another bridge has sent is newer than what this one's watches have delivered.
#[test]
fn s04_a_bridge_whose_watches_are_behind_takes_nothing_back() {
    for scope in SCOPES {
        let mut world = calm(scope, 2);
        world.move_to(0);
        world.settle();
        world.bridges[0].stalled = true;
        world.move_to(1);
        world.api.set_service(WEB);
        world.api.delete_slices(WEB);
        world.api.delete_service(("ns", "db"));
        world.run();
        assert_eq!(world.differs(), None, "the other bridge knows all");
        let before = held(&world);
        world.move_to(0);
        world.run();
        assert_eq!(held(&world), before);
        world.settle();
        assert_eq!(held(&world), before, "what the watches tell at last is known");
    }
}

#[test]
fn s11_a_node_that_does_not_want_services_holds_none() {
    for scope in SCOPES {
        for restart in [false, true] {
            let mut world = calm(scope, 1);
            let before = held(&world);
            for wanted in [false, true] {
                world.away();
                world.device.services = wanted;
                if restart {
                    world.restart_bridge(0);
                }
                world.settle();
                assert_eq!(held(&world), if wanted { before.clone() } else { Vec::new() });
            }
        }
    }
}
