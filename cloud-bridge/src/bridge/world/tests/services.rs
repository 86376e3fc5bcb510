//! Services and neighbours that nodes receive.

use super::*;
use crate::bridge::told::groups::service_views;

/// The three groups of a pod's namespace, in order.
fn groups() -> [ObjectKey; 3] {
    let mut groups: [ObjectKey; 3] = service_views("ns", ServiceScope::Namespaces, None).try_into().expect("three");
    groups.sort();
    groups
}

/// Reports that the two groups which every pod may use are empty.
fn nothing_else(world: &mut World) -> Vec<Effect> {
    let others = groups().into_iter().filter(|group| group.namespace != "ns");
    others.flat_map(|group| world.group_present(&group, Group::new())).collect()
}

#[test]
fn services_go_to_nodes_that_want_them_and_have_a_pod_beside_them() {
    let mut world = world(&["a", "b"]);
    let _ = world.wants("a", SERVICES, None);
    let all = service_views("ns", ServiceScope::Namespaces, None)[0].clone();
    let watches = words(&world.pod_applied(pod("a", "p", &[])));
    assert_eq!(watches, ["watch kubernetes for a", "watch kube-dns for a", "watch all for a"]);
    assert_eq!(words(&world.pod_applied(pod("b", "q", &[]))), ["set b q uid-q"], "it does not want to know");
    assert!(nothing_else(&mut world).is_empty());
    // The pod waits for the Services that it may resolve.
    let told = words(&world.group_present(&all, views(&[("web", "u1"), ("db", "u2")])));
    assert_eq!(told, ["set a db u2", "set a web u1", "set a p uid-p"]);
    assert_eq!(words(&world.wants("b", SERVICES, None)), ["set b db u2", "set b web u1"]);
    // Only the changes.
    let told = words(&world.group_present(&all, views(&[("web", "u3")])));
    let of =
        |node: &str| [format!("withdraw {node} db u2"), format!("remove {node} web u1"), format!("set {node} web u3")];
    assert_eq!(told, [of("a"), of("b")].concat());
    assert!(world.group_present(&all, views(&[("web", "u3")])).is_empty());
    // Without pods there, or without nodes that need it.
    let told = words(&world.pod_deleted("a", &key("Pod", "p"), "uid-p"));
    assert_eq!(told, ["remove a p uid-p", "withdraw a web u3"]);
    let told = words(&world.wants("b", Wants::default(), None));
    assert_eq!(told, ["unwatch kubernetes", "unwatch kube-dns", "withdraw b web u3", "unwatch all"]);
}

#[test]
fn a_list_waits_for_services_and_takes_none_for_an_answer() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    let _ = world.wants("a", SERVICES, None);
    let told = words(&world.seed("a", round, vec![pod("a", "p", &[])], None));
    assert!(!told.iter().any(|word| word.starts_with("set") || word.starts_with("listed")), "{told:?}");
    assert!(nothing_else(&mut world).is_empty());
    let told = words(&world.group_present(&service_views("ns", ServiceScope::Namespaces, None)[0], Group::new()));
    assert_eq!(told, ["set a p uid-p", "listed a 1"]);
}

#[test]
fn the_list_of_a_node_with_routes_waits_until_it_is_known_where_it_is() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    assert!(world.wants("a", ROUTES, None).is_empty());
    assert!(world.seed("a", round, vec![], None).is_empty(), "it may hold a site from before");
    let watches = words(&world.located("a", Some("hall")));
    assert_eq!(watches, ["watch hall for a"]);
    assert!(world.all_located().is_empty(), "the site itself is not known yet");
    let told = words(&world.object_present(site("hall")));
    assert_eq!(told, ["set a hall site-hall", "listed a 1"]);
}

/// The object of a site, as it is read.
fn site(name: &str) -> Object {
    let mut site = object("SiteView", name, &format!("site-{name}"));
    site.digest.key.namespace.clear();
    site
}

#[test]
fn site_of_a_node_that_is_located_late_is_read_again() {
    let mut world = world(&["a"]);
    let _ = world.all_located();
    assert_eq!(words(&world.wants("a", ROUTES, Some("hall"))), ["watch hall for a"]);
    assert_eq!(words(&world.object_present(site("hall"))), ["set a hall site-hall"]);
    let round = hello(&mut world, "b");
    let _ = world.wants("b", ROUTES, None);
    world.withhold_lists(true);
    assert!(world.seed("b", round, vec![], None).is_empty());
    world.withhold_lists(false);
    assert_eq!(words(&world.located("b", Some("hall"))), ["set b hall site-hall", "watch hall for a"]);
    assert!(world.located("b", Some("hall")).is_empty(), "once");
    let told = words(&world.object_present(site("hall")));
    assert_eq!(told, ["set a hall site-hall", "set b hall site-hall", "listed b 1"]);
}

#[test]
fn object_of_a_pod_that_comes_before_the_list_is_complete_is_read_again() {
    let mut world = world(&["a"]);
    let _ = world.pod_applied(pod("a", "p", &["map"]));
    let _ = world.object_present(object("ConfigMap", "map", "u1"));
    let round = hello(&mut world, "b");
    let _ = world.seed("b", round, vec![pod("b", "q", &["late"])], None);
    let told = words(&world.pod_applied(pod("b", "r", &["map"])));
    assert!(told.contains(&"watch map for a".to_owned()), "{told:?}");
    let _ = world.admitted("b", &key("ConfigMap", "map"));
    let _ = world.object_present(object("ConfigMap", "late", "u2"));
    let told = words(&world.object_present(object("ConfigMap", "map", "u1")));
    assert!(told.contains(&"listed b 1".to_owned()), "{told:?}");
}

#[test]
fn a_node_of_no_site_waits_for_none() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    let _ = world.wants("a", ROUTES, None);
    let _ = world.seed("a", round, vec![], None);
    assert_eq!(words(&world.all_located()), ["listed a 1"]);
    let mut plain = World::default();
    let round = hello(&mut plain, "a");
    let _ = plain.wants("a", Wants::default(), Some("hall"));
    assert_eq!(words(&plain.seed("a", round, vec![], None)), ["listed a 1"], "it has not asked");
}

#[test]
fn who_moves_to_another_site_has_the_endpoints_of_that_one_alone() {
    let mut world = world(&["a", "b"]);
    let _ = world.all_located();
    let _ = world.wants("a", ROUTES, Some("hall"));
    let _ = world.wants("b", ROUTES, Some("yard"));
    let _ = world.pod_applied(pod("a", "p", &[]));
    let _ = world.pod_applied(pod("b", "q", &[]));
    let of = |site: &str| service_views("ns", ServiceScope::Namespaces, Some(site))[0].clone();
    assert_eq!(of("hall").name, "all@hall");
    let _ = world.group_present(&of("hall"), views(&[("web", "u1")]));
    let _ = world.group_present(&of("yard"), views(&[("web", "u1"), ("db", "u2")]));
    let told = words(&world.located("a", Some("yard")));
    let news: Vec<&String> = told.iter().filter(|word| word.contains("web") || word.contains("db")).collect();
    assert_eq!(news, ["withdraw a web u1", "set a db u2", "set a web u1"], "what stays is said last");
    assert!(told.contains(&"unwatch all@hall".to_owned()) && told.contains(&"unwatch hall".to_owned()), "{told:?}");
}

#[test]
fn node_with_routes_gets_all_services_without_own_pods() {
    let mut world = World::new(ServiceScope::All);
    ["a", "b"].into_iter().for_each(|node| world.add_node(node));
    let all = service_views("", ServiceScope::All, Some("hall"))[0].clone();
    assert_eq!(words(&world.wants("a", ROUTES, Some("hall"))), ["watch all@hall for a", "watch hall for a"]);
    assert!(world.wants("b", SERVICES, None).is_empty(), "without routes it leads to its own pods alone");
    assert_eq!(words(&world.group_present(&all, views(&[("web", "u1")]))), ["set a web u1"]);
    assert_eq!(words(&world.pod_applied(pod("a", "p", &[]))), ["set a p uid-p"]);
    assert_eq!(words(&world.pod_deleted("a", &key("Pod", "p"), "uid-p")), ["remove a p uid-p"], "the view stays");
    let told = words(&world.located("a", None));
    assert_eq!(told, ["withdraw a web u1", "unwatch all@hall", "unwatch hall"]);
}

#[test]
fn held_services_are_withdrawn_unless_sent_since() {
    let mut world = world(&["a"]);
    let _ = world.wants("a", SERVICES, None);
    let view = key("ServiceView", "web");
    assert_eq!(words(&world.unlisted("a", &view, "u1")), ["withdraw a web u1"], "it has no pod there");
    let _ = world.pod_applied(pod("a", "p", &[]));
    let all = service_views("ns", ServiceScope::Namespaces, None)[0].clone();
    let _ = world.group_present(&all, views(&[("web", "u1")]));
    assert!(world.unlisted("a", &view, "u1").is_empty(), "a pod has come meanwhile");
    assert_eq!(words(&world.unlisted("a", &view, "u0")), ["withdraw a web u0"], "an earlier one of that name");
    assert_eq!(words(&world.unlisted("b", &view, "u1")), ["withdraw b web u1"]);
}
