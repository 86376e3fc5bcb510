//! What `world` promises, case by case.

use edge_protocol::message::{Object, ObjectDigest};
use serde_json::json;

use super::*;
use crate::bridge::pod_references::{device_views, policy_views, service_views};

fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey { kind: kind.into(), namespace: "ns".into(), name: name.into() }
}

fn object(kind: &str, name: &str, uid: &str) -> Object {
    Object {
        digest: ObjectDigest { key: key(kind, name), uid: uid.into(), digest: format!("d-{uid}") },
        body: json!({}),
    }
}

fn pod(node: &str, name: &str, maps: &[&str]) -> BoundPod {
    BoundPod {
        node: node.into(),
        object: object("Pod", name, &format!("uid-{name}")),
        refs: maps.iter().map(|map| key("ConfigMap", map)).collect(),
        generation: 1,
        version: None,
        terminating: false,
        mirror_of: None,
        falsely_unready: false,
    }
}

/// Effects as short words.
fn words(effects: &[Effect]) -> Vec<String> {
    let word = |effect: &Effect| match effect {
        Effect::ReadJobs => "read jobs".to_owned(),
        Effect::Set { node, object } => format!("set {node} {} {}", object.digest.key.name, object.digest.uid),
        Effect::Remove { node, key, uid } => format!("remove {node} {} {uid}", key.name),
        Effect::Withdraw { node, key, uid } => format!("withdraw {node} {} {uid}", key.name),
        Effect::Listed { node, session } => format!("listed {node} {session}"),
        Effect::Watch { key, node } => format!("watch {} for {node}", key.name),
        Effect::Admit { key, node } => format!("admit {} for {node}", key.name),
        Effect::Ask { node, key, uid } => format!("ask {node} {} {uid}", key.name),
        Effect::Unwatch { key } => format!("unwatch {}", key.name),
        Effect::RestoreReady { node, key, .. } => format!("restore {node} {}", key.name),
        Effect::FinishMirror { node, key, .. } => format!("finish {node} {}", key.name),
    };
    effects.iter().map(word).collect()
}

/// The node's first connection; the round of the readings that follow.
fn hello(world: &mut World, node: &str) -> u64 {
    world.add_node(node);
    world.refresh(node, 1);
    world.round()
}

fn world(nodes: &[&str]) -> World {
    let mut world = World::default();
    for node in nodes {
        let round = hello(&mut world, node);
        assert_eq!(words(&world.seed(node, round, vec![], None)), [format!("listed {node} 1")]);
    }
    world
}

#[test]
fn withheld_lists_are_told_without_their_end() {
    let mut world = World::default();
    world.withhold_lists(true);
    let round = hello(&mut world, "a");
    assert_eq!(words(&world.seed("a", round, vec![], None)), [""; 0]);
    world.withhold_lists(false);
    let round = hello(&mut world, "a");
    assert_eq!(words(&world.seed("a", round, vec![], None)), ["listed a 1"]);
    let mut world = World::default();
    world.withhold_lists(true);
    let round = hello(&mut world, "a");
    world.seed("a", round, vec![], None);
    assert_eq!(words(&world.pod_applied(pod("a", "p", &[]))), ["set a p uid-p"]);
}

#[test]
fn pods_of_other_nodes_are_nobodys_business() {
    let mut world = world(&["a"]);
    assert!(world.pod_applied(pod("z", "p", &["m"])).is_empty());
    assert!(world.pod_deleted("z", &key("Pod", "p"), "uid-p").is_empty());
}

#[test]
fn a_pod_waits_for_what_it_names() {
    let mut world = world(&["a"]);
    assert_eq!(words(&world.pod_applied(pod("a", "p", &["m"]))), ["watch m for a"]);
    let effects = world.object_present(object("ConfigMap", "m", "m1"));
    assert_eq!(words(&effects), ["set a m m1", "set a p uid-p"]);
    assert_eq!(words(&world.pod_applied(pod("a", "q", &["m"]))), ["set a q uid-q"]);
}

#[test]
fn pods_of_a_node_name_a_bounded_number_of_bytes() {
    let mut world = world(&["a", "b"]);
    let names: Vec<String> = (0..17).map(|at| format!("m{at:02}")).collect();
    world.pod_applied(pod("a", "p", &names.iter().map(String::as_str).collect::<Vec<_>>()));
    let large = |name: &str| {
        let text = "x".repeat((1 << 20) - 100);
        Object { body: json!({"data": {"k": text}}), ..object("ConfigMap", name, name) }
    };
    for name in &names[..16] {
        assert!(words(&world.object_present(large(name))).contains(&format!("set a {name} {name}")));
    }
    let effects = world.object_present(large("m16"));
    assert_eq!(words(&effects), ["set a p uid-p"], "it is as good as missing: the pod does not wait for it");
    assert!(words(&world.object_present(large("m00"))).contains(&"set a m00 m00".to_owned()), "it has its room");
    assert_eq!(
        words(&world.object_present(object("ConfigMap", "m16", "m16"))),
        ["set a m16 m16"],
        "small ones do not count"
    );
    assert_eq!(
        words(&world.object_present(large("m16"))),
        ["withdraw a m16 m16"],
        "it lives on, and may be told again"
    );
    world.object_absent(&key("ConfigMap", "m00"));
    assert_eq!(words(&world.object_present(large("m16"))), ["set a m16 m16"]);
    world.pod_applied(pod("b", "q", &["other"]));
    assert!(words(&world.object_present(large("other"))).contains(&"set b other other".to_owned()));
}

#[test]
fn a_pod_does_not_wait_for_what_is_missing_or_cannot_be_read() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &["m", "n"]));
    assert!(world.object_absent(&key("ConfigMap", "m")).is_empty());
    assert_eq!(words(&world.object_failed(&key("ConfigMap", "n"))), ["set a p uid-p"]);
    assert_eq!(words(&world.object_present(object("ConfigMap", "m", "m1"))), ["set a m m1"]);
}

#[test]
fn a_list_is_complete_only_with_every_object_it_needs() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    assert_eq!(
        words(&world.seed("a", round, vec![pod("a", "p", &["m", "n"])], None)),
        ["watch m for a", "watch n for a"]
    );
    assert!(world.object_present(object("ConfigMap", "m", "m1")).iter().all(|e| !matches!(e, Effect::Listed { .. })));
    let effects = world.object_failed(&key("ConfigMap", "n"));
    assert_eq!(words(&effects), ["set a p uid-p"], "an unreadable object may be held by the node: no list yet");
    assert_eq!(words(&world.object_absent(&key("ConfigMap", "n"))), ["listed a 1"]);
}

#[test]
fn news_before_the_seed_is_newer_than_the_seed() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    world.pod_deleted("a", &key("Pod", "p"), "uid-p");
    let mut newer = pod("a", "q", &[]);
    newer.generation = 2;
    world.pod_applied(newer);
    let effects = world.seed("a", round, vec![pod("a", "p", &[]), pod("a", "q", &[])], None);
    assert_eq!(words(&effects), ["listed a 1"]);
}

#[test]
fn late_watch_events_do_not_turn_a_pod_back() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    let mut ending = pod("a", "p", &[]);
    ending.terminating = true;
    world.seed("a", round, vec![ending], None);
    assert!(world.pod_applied(pod("a", "p", &[])).is_empty());
}

#[test]
fn the_last_user_takes_the_object_along() {
    let mut world = world(&["a", "b"]);
    world.pod_applied(pod("a", "p", &["m"]));
    world.object_present(object("ConfigMap", "m", "m1"));
    world.pod_applied(pod("a", "q", &["m"]));
    assert_eq!(words(&world.pod_applied(pod("b", "r", &["m"]))), ["admit m for b"]);
    assert_eq!(words(&world.admitted("b", &key("ConfigMap", "m"))), ["set b m m1", "set b r uid-r"]);
    assert_eq!(words(&world.pod_deleted("a", &key("Pod", "p"), "uid-p")), ["remove a p uid-p"]);
    assert_eq!(
        words(&world.pod_deleted("a", &key("Pod", "q"), "uid-q")),
        ["remove a q uid-q", "withdraw a m m1", "watch m for b"]
    );
    assert!(!world.uses("a", &key("ConfigMap", "m")) && world.uses("b", &key("ConfigMap", "m")));
    assert_eq!(
        words(&world.pod_deleted("b", &key("Pod", "r"), "uid-r")),
        ["remove b r uid-r", "withdraw b m m1", "unwatch m"]
    );
}

#[test]
fn deleted_and_made_again_is_another_object() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &["m"]));
    world.object_present(object("ConfigMap", "m", "m1"));
    assert_eq!(words(&world.object_present(object("ConfigMap", "m", "m2"))), ["remove a m m1", "set a m m2"]);
    assert_eq!(words(&world.object_absent(&key("ConfigMap", "m"))), ["remove a m m2"]);
    assert_eq!(words(&world.object_present(object("ConfigMap", "m", "m3"))), ["set a m m3"]);
    assert!(world.object_failed(&key("ConfigMap", "m")).is_empty(), "an error forgets nothing");
}

#[test]
fn a_new_container_may_name_more() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &["m"]));
    world.object_absent(&key("ConfigMap", "m"));
    let effects = world.pod_applied(pod("a", "p", &["n"]));
    assert_eq!(words(&effects), ["watch n for a", "unwatch m"]);
}

#[test]
fn what_a_new_list_lacks_is_named_for_looking_up() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &[]));
    world.pod_applied(pod("a", "q", &[]));
    let listed = HashSet::from(["uid-p".to_owned()]);
    assert_eq!(world.missing(&listed), [("a".to_owned(), key("Pod", "q"), "uid-q".to_owned())]);
}

#[test]
fn a_mirror_that_somebody_deletes_is_finished_at_once() {
    let mut world = world(&["a"]);
    let mut mirror = pod("a", "s-a", &[]);
    mirror.mirror_of = Some("static".into());
    world.pod_applied(mirror.clone());
    mirror.terminating = true;
    assert_eq!(words(&world.pod_applied(mirror)), ["finish a s-a", "set a s-a uid-s-a"]);
}

#[test]
fn a_forgotten_node_leaves_no_watch_behind() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &["m"]));
    assert_eq!(words(&world.drop_node("a")), ["unwatch m"]);
    assert!(!world.is_ours("a"));
}

#[test]
fn a_node_that_comes_back_gets_its_pods_called_ready_again() {
    let mut world = world(&["a"]);
    let mut unready = pod("a", "p", &[]);
    unready.falsely_unready = true;
    assert_eq!(words(&world.pod_applied(unready)), ["restore a p", "set a p uid-p"]);
    assert_eq!(words(&world.connected("a")), ["restore a p"]);
    world.pod_applied(pod("a", "p", &[]));
    assert!(world.connected("a").is_empty());
}

/// The pods of a node were read after its pod was replaced, and the watch has not got so far: it still tells of the old
/// one under the same name.
#[test]
fn g03_what_a_watch_tells_late_does_not_bury_the_successor() {
    let named = |uid: &str| {
        let mut pod = pod("a", "p", &[]);
        pod.object = object("Pod", "p", uid);
        pod
    };
    let mut world = World::default();
    let round = hello(&mut world, "a");
    assert_eq!(words(&world.seed("a", round, vec![named("new")], None)), ["set a p new", "listed a 1"]);
    assert_eq!(words(&world.pod_applied(named("old"))), ["ask a p new"]);
    assert!(world.pod_applied(named("old")).is_empty(), "asked once");
    assert_eq!(words(&world.pod_applied(named("new"))), ["set a p new"], "it was found");
    assert_eq!(words(&world.pod_deleted("a", &key("Pod", "p"), "old")), ["remove a p old"]);

    // The other way round, and nothing is listed before it is known.
    let mut world = World::default();
    let round = hello(&mut world, "a");
    assert_eq!(words(&world.pod_applied(named("old"))), ["set a p old"]);
    assert_eq!(words(&world.seed("a", round, vec![named("new")], None)), ["ask a p old"]);
    assert_eq!(words(&world.pod_deleted("a", &key("Pod", "p"), "old")), ["remove a p old", "listed a 1"]);
    assert_eq!(words(&world.pod_applied(named("new"))), ["set a p new"]);
}

/// A question by name is ahead of the watch: what that still tells of the pod does not bring it back.
#[test]
fn g07_what_was_found_gone_is_not_brought_back_by_a_late_watch() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    world.seed("a", round, vec![pod("a", "p", &[])], None);
    assert_eq!(words(&world.pod_gone("a", &key("Pod", "p"), "uid-p")), ["remove a p uid-p"]);
    assert!(world.pod_applied(pod("a", "p", &[])).is_empty());
    assert_eq!(words(&world.pod_deleted("a", &key("Pod", "p"), "uid-p")), ["remove a p uid-p"]);
    world.pod_gone("a", &key("Pod", "p"), "uid-p");
    assert!(world.missing(&HashSet::new()).is_empty());
    assert!(world.nodes["a"].buried.is_empty(), "a list without it is the last word");
}

#[test]
fn g07_what_the_watch_tells_from_before_the_list_is_asked_for() {
    let at = |name: &str, version| BoundPod { version: Some(version), ..pod("a", name, &[]) };
    let mut world = World::default();
    let round = hello(&mut world, "a");
    // The watch is ahead with `q`, and behind with `p`, which the list of version 10 does not show any more.
    assert_eq!(words(&world.pod_applied(at("p", 4))), ["set a p uid-p"]);
    assert_eq!(words(&world.pod_applied(at("q", 12))), ["set a q uid-q"]);
    assert_eq!(words(&world.seed("a", round, vec![at("r", 9)], Some(10))), ["ask a p uid-p", "set a r uid-r"]);
    let effects = world.pod_gone("a", &key("Pod", "p"), "uid-p");
    assert_eq!(words(&effects), ["remove a p uid-p", "listed a 1"]);
    assert_eq!(words(&world.pod_applied(at("p", 5))), [""; 0], "it is known to be gone");

    // One that the watch has not told of before the list.
    assert_eq!(words(&world.pod_applied(at("s", 7))), ["ask a s uid-s"]);
    assert_eq!(words(&world.pod_applied(at("s", 8))), [""; 0], "asked already");
    assert_eq!(words(&world.pod_found(at("s", 8))), ["set a s uid-s"], "the list lacked it by mistake");
    assert_eq!(words(&world.pod_applied(at("t", 11))), ["set a t uid-t"], "newer than the list");
    world.relisted();
    assert_eq!(words(&world.pod_applied(at("u", 3))), ["set a u uid-u"], "an API that was put back to an older state");
}

/// The node was at another bridge, which knew more than the watches here tell so far.
#[test]
fn g12_a_node_from_elsewhere_is_told_nothing_before_all_was_read_anew() {
    let at = |name: &str, version, maps: &[&str]| BoundPod { version: Some(version), ..pod("a", name, maps) };
    let mut world = world(&["a", "b"]);
    world.pod_applied(at("p", 4, &["m"]));
    world.pod_applied(at("q", 5, &[]));
    world.pod_applied(BoundPod { node: "b".into(), ..at("r", 6, &["n"]) });
    world.object_present(object("ConfigMap", "m", "m1"));
    world.object_present(object("ConfigMap", "n", "n1"));

    world.refresh("a", 2);
    let early = world.round();
    world.refresh("a", 3);
    let round = world.round();
    assert_eq!(words(&world.seed("a", early, vec![], Some(9))), [""; 0], "asked before the hello");
    // A newer state of `p`, no `q` any more, and a new pod that names what only another node has named here so far.
    let mut newer = at("p", 8, &["m"]);
    newer.object = object("Pod", "p", "uid-p");
    newer.object.digest.digest = "newer".into();
    let effects = world.seed("a", round, vec![newer, at("s", 9, &["n"])], Some(10));
    let wanted = ["ask a q uid-q", "admit n for a", "watch m for a", "watch n for b", "set a p uid-p"];
    assert_eq!(words(&effects), wanted);
    assert_eq!(words(&world.admitted("a", &key("ConfigMap", "n"))), ["set a n n1", "set a s uid-s"]);
    assert_eq!(words(&world.pod_applied(at("p", 7, &["m"]))), [""; 0], "a label that was changed since");
    assert_eq!(words(&world.pod_gone("a", &key("Pod", "q"), "uid-q")), ["remove a q uid-q"]);
    assert_eq!(words(&world.object_present(object("ConfigMap", "n", "n2")))[..2], ["remove a n n1", "set a n n2"]);
    assert_eq!(words(&world.object_failed(&key("ConfigMap", "m"))), [""; 0], "not known to be as new as the node's");
    assert_eq!(words(&world.object_absent(&key("ConfigMap", "m"))), ["remove a m m1", "listed a 3"]);

    // Those that come together have one reading of what they share.
    world.refresh("a", 4);
    world.refresh("b", 5);
    let round = world.round();
    let effects = world.seed("a", round, vec![at("s", 9, &["n"])], Some(12));
    assert!(words(&effects).contains(&"watch n for b".to_owned()), "{effects:?}");
    let effects = world.seed("b", round, vec![BoundPod { node: "b".into(), ..at("r", 6, &["n"]) }], Some(12));
    assert_eq!(words(&effects), ["set b r uid-r"]);
}

/// What is watched in the name of one node is told to another only when the API has agreed in that one's name.
#[test]
fn g27_the_right_of_one_node_is_no_other_ones() {
    let secret = key("ConfigMap", "m");
    let mut world = world(&["a", "evil"]);
    world.pod_applied(pod("a", "p", &["m"]));
    world.object_present(object("ConfigMap", "m", "m1"));
    assert_eq!(words(&world.pod_applied(pod("evil", "q", &["m"]))), ["admit m for evil"]);
    // Refused, asked again, and told nothing meanwhile; its pod, which the API says is its own, waits no longer.
    let (effects, again) = world.not_admitted("evil", &secret);
    assert_eq!((words(&effects), again), (vec!["set evil q uid-q".to_owned()], true));
    assert_eq!(words(&world.object_present(object("ConfigMap", "m", "m2"))), ["remove a m m1", "set a m m2"]);
    assert_eq!(words(&world.object_absent(&secret)), ["remove a m m2"]);
    world.object_present(object("ConfigMap", "m", "m3"));
    assert_eq!(words(&world.pod_deleted("evil", &key("Pod", "q"), "uid-q")), ["remove evil q uid-q"]);
    assert!(!world.not_admitted("evil", &secret).1, "it has no use for it any more");
    assert!(world.admitted("evil", &secret).is_empty(), "a late yes");

    // A list of a node that is refused is never complete: what it may hold from before is not deleted.
    world.refresh("evil", 2);
    let round = world.round();
    let effects = world.seed("evil", round, vec![pod("evil", "q", &["m"])], None);
    assert_eq!(words(&effects), ["admit m for evil", "watch m for a"]);
    world.object_present(object("ConfigMap", "m", "m3"));
    assert_eq!(words(&world.not_admitted("evil", &secret).0), ["set evil q uid-q"]);
    assert_eq!(words(&world.admitted("evil", &secret)), ["set evil m m3", "listed evil 2"]);
}

/// Who comes first reads for all: one whom the API refuses keeps it from nobody, and has it once the API has thought better
/// of it: it refuses a node until it has heard of the node's pod.
#[test]
fn g27_a_refused_reader_keeps_nothing_from_others() {
    let map = key("ConfigMap", "m");
    let mut world = world(&["a", "b", "evil"]);
    assert_eq!(words(&world.pod_applied(pod("evil", "q", &["m"]))), ["watch m for evil"]);
    assert_eq!(words(&world.object_refused(&map)), ["set evil q uid-q"], "nobody else wants it");
    assert_eq!(words(&world.pod_applied(pod("a", "p", &["m"]))), ["admit m for a"]);
    assert_eq!(words(&world.admitted("a", &map)), ["admit m for evil", "watch m for a"]);
    assert_eq!(words(&world.object_present(object("ConfigMap", "m", "m1"))), ["set a m m1", "set a p uid-p"]);
    assert!(world.not_admitted("evil", &map).1, "it is asked for again");
    assert_eq!(words(&world.admitted("evil", &map)), ["set evil m m1"]);

    // The other way round: others are there already, and wait.
    let mut world = self::world(&["a", "evil"]);
    world.pod_applied(pod("evil", "q", &["m"]));
    world.pod_applied(pod("a", "p", &["m"]));
    assert_eq!(words(&world.object_refused(&map)), ["admit m for evil", "watch m for a"]);
    let effects = world.object_present(object("ConfigMap", "m", "m1"));
    assert_eq!(words(&effects), ["set a m m1", "set a p uid-p", "set evil q uid-q"]);
    assert!(world.not_admitted("evil", &map).0.is_empty());
    // One that is refused although it reads for all gives way, and what is known stays.
    let mut world = self::world(&["a", "b"]);
    world.pod_applied(pod("a", "p", &["m"]));
    world.object_present(object("ConfigMap", "m", "m1"));
    world.pod_applied(pod("b", "r", &["m"]));
    world.admitted("b", &map);
    assert_eq!(words(&world.object_refused(&map)), ["admit m for a", "watch m for b"]);
}

/// What every node may read costs no question.
#[test]
fn services_and_runtime_classes_are_for_all_nodes() {
    let mut world = world(&["a", "b"]);
    let with =
        |node: &str, name: &str| BoundPod { refs: [key("RuntimeClass", "quick")].into(), ..pod(node, name, &[]) };
    world.pod_applied(with("a", "p"));
    world.object_present(object("RuntimeClass", "quick", "q1"));
    assert_eq!(words(&world.pod_applied(with("b", "r"))), ["set b quick q1", "set b r uid-r"]);
}

/// A node asks about pods that never were: what it was told of them is not remembered without end.
#[test]
fn g17_what_a_node_asks_about_is_remembered_up_to_a_bound() {
    let mut world = world(&["a"]);
    for number in 0..MAX_TOMBSTONES + 100 {
        world.pod_gone("a", &key("Pod", "p"), &number.to_string());
    }
    assert_eq!(world.nodes["a"].buried.len(), MAX_TOMBSTONES);
}

fn views(names: &[(&str, &str)]) -> Group {
    let view = |(name, uid): &(&str, &str)| (key("ServiceView", name), Told::new(object("ServiceView", name, uid)));
    names.iter().map(view).collect()
}

const SERVICES: Wants = Wants { services: true, routes: false, policies: false, devices: false, rules: false };

/// The three groups of a pod's namespace, in order.
fn groups() -> [ObjectKey; 3] {
    let mut groups: [ObjectKey; 3] = service_views("ns", ServiceScope::Namespaces, None).try_into().expect("three");
    groups.sort();
    groups
}

/// Tells that the two groups which every pod may use are empty.
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
    // The pod waits for what it may ask for.
    let told = words(&world.group_present(&all, views(&[("web", "u1"), ("db", "u2")])));
    assert_eq!(told, ["set a db u2", "set a web u1", "set a p uid-p"]);
    assert_eq!(words(&world.wants("b", SERVICES, None)), ["set b db u2", "set b web u1"]);
    // What changes, and no more.
    let told = words(&world.group_present(&all, views(&[("web", "u3")])));
    let of =
        |node: &str| [format!("withdraw {node} db u2"), format!("remove {node} web u1"), format!("set {node} web u3")];
    assert_eq!(told, [of("a"), of("b")].concat());
    assert!(world.group_present(&all, views(&[("web", "u3")])).is_empty());
    // Nobody there any more, or nobody who wants to know.
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

const ROUTES: Wants = Wants { services: true, routes: true, policies: false, devices: false, rules: false };

#[test]
fn the_list_of_a_node_with_routes_waits_until_it_is_known_where_it_is() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    assert!(world.wants("a", ROUTES, None).is_empty());
    assert!(world.seed("a", round, vec![], None).is_empty(), "it may hold a site from before");
    let watches = words(&world.located("a", Some("hall")));
    assert_eq!(watches, ["watch hall for a"]);
    assert!(world.all_located().is_empty(), "the site itself is not known yet");
    let mut site = object("SiteView", "hall", "site-hall");
    site.digest.key.namespace.clear();
    let told = words(&world.object_present(site));
    assert_eq!(told, ["set a hall site-hall", "listed a 1"]);
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
fn who_leads_to_a_neighbours_pods_is_told_all_services_without_pods_of_its_own() {
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

const POLICIES: Wants = Wants { services: false, routes: false, policies: true, devices: false, rules: false };

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
    // A site has one group for all; a cluster has none, whatever nodes are told of Services.
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
fn what_a_node_holds_of_services_is_taken_back_unless_it_has_been_told_since() {
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

const DEVICES: Wants = Wants { services: false, routes: false, policies: false, devices: true, rules: false };

#[test]
fn d02_a_list_waits_for_the_devices_of_the_node() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    assert_eq!(words(&world.wants("a", DEVICES, None)), ["watch a for a"]);
    assert_eq!(words(&world.seed("a", round, vec![pod("a", "p", &[])], None)), ["set a p uid-p"]);
    let device = |uid: &str| Group::from([(key("Device", "d"), Told::new(object("Device", "d", uid)))]);
    assert_eq!(words(&world.group_present(&device_views("a"), device("1"))), ["set a d 1", "listed a 1"]);
    // Made anew under its name, moved away, and back.
    assert_eq!(words(&world.group_present(&device_views("a"), device("2"))), ["remove a d 1", "set a d 2"]);
    assert_eq!(words(&world.group_present(&device_views("a"), Group::new())), ["withdraw a d 2"]);
    assert_eq!(words(&world.group_present(&device_views("a"), device("2"))), ["set a d 2"]);
}

#[test]
fn d13_who_wants_no_devices_is_told_none_and_nothing_is_watched() {
    let mut world = world(&["a"]);
    assert!(world.wants("a", Wants::default(), None).is_empty());
    assert_eq!(words(&world.wants("a", DEVICES, None)), ["watch a for a"]);
    assert!(world.wants("a", DEVICES, None).is_empty(), "it says so with each connection");
    let device = Group::from([(key("Device", "d"), Told::new(object("Device", "d", "1")))]);
    let _ = world.group_present(&device_views("a"), device);
    assert_eq!(words(&world.wants("a", Wants::default(), None)), ["withdraw a d 1", "unwatch a"]);
    let _ = world.wants("a", DEVICES, None);
    assert_eq!(words(&world.drop_node("a")), ["unwatch a"]);
}

/// Services are others on another site; devices are the same.
#[test]
fn devices_stay_while_a_node_moves_to_another_site_or_changes_its_mind_about_services() {
    let mut world = world(&["a"]);
    let _ = world.wants("a", DEVICES, None);
    let device = Group::from([(key("Device", "d"), Told::new(object("Device", "d", "1")))]);
    let _ = world.group_present(&device_views("a"), device);
    for (wants, site) in [(ROUTES, None), (ROUTES, Some("hall")), (ROUTES, Some("yard")), (SERVICES, None)] {
        let told = words(&world.wants("a", Wants { devices: true, ..wants }, site));
        assert!(told.iter().all(|word| !word.ends_with(" a d 1")), "{told:?}");
        let interested = words(&world.interested("a", &["x".to_owned()], std::time::Duration::ZERO));
        assert!(interested.iter().all(|word| !word.ends_with(" a d 1")), "{interested:?}");
    }
}

#[test]
fn a_device_that_a_node_holds_is_taken_back_when_it_is_not_its_own() {
    let mut world = world(&["a", "b"]);
    let _ = world.wants("a", DEVICES, None);
    let device = Group::from([(key("Device", "d"), Told::new(object("Device", "d", "1")))]);
    let _ = world.group_present(&device_views("a"), device);
    assert!(world.unlisted("a", &key("Device", "d"), "1").is_empty());
    assert_eq!(words(&world.unlisted("a", &key("Device", "d"), "0")), ["withdraw a d 0"]);
    assert_eq!(words(&world.unlisted("b", &key("Device", "d"), "1")), ["withdraw b d 1"]);
}
