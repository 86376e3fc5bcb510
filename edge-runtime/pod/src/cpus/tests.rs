//! Tables of boards and pods.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::record::ContainerRecord;
use super::*;

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

fn board(cores: &[&str]) -> Topology {
    Topology::new(cores.iter().map(|core| set(core)).collect())
}

/// A pod whose containers `(name, kind, cpu)` are Guaranteed; `kind` is `init`, `sidecar` or `app`.
fn pod(uid: &str, containers: &[(&str, &str, &str)]) -> Pod {
    let of = |(name, kind, cpu): &(&str, &str, &str)| {
        let limits = json!({"cpu": cpu, "memory": "16Mi"});
        let policy = if *kind == "sidecar" { json!("Always") } else { Value::Null };
        json!({"name": name, "restartPolicy": policy, "resources": {"limits": limits, "requests": limits}})
    };
    let (apps, init): (Vec<_>, Vec<_>) = containers.iter().partition(|one| one.1 == "app");
    let [apps, init] = [apps, init].map(|list| list.into_iter().map(of).collect::<Vec<Value>>());
    let spec = json!({"containers": apps, "initContainers": init});
    serde_json::from_value(json!({"metadata": {"uid": uid, "name": uid}, "spec": spec})).unwrap()
}

/// Assigns the pods one after the other: `UID/CONTAINER=CPUS ...`, or the shortage.
fn assigned(topology: &Topology, reserved: &str, pods: &[Pod]) -> String {
    let mut held = Vec::new();
    for pod in pods {
        match assign(topology, &set(reserved), &held, pod) {
            Ok(new) => new.into_iter().for_each(|one| add(&mut held, one)),
            Err(shortage) => return format!("{}/{}", shortage.requested, shortage.available),
        }
    }
    let all: Vec<String> = held.iter().map(|one| format!("{}/{}={}", one.uid, one.container, one.cpus)).collect();
    all.join(" ")
}

#[test]
fn whole_cores_come_first() {
    let (one, two, four): (&[&str], &[&str], &[&str]) = (&["0"], &["0", "1"], &["0", "1", "2", "3"]);
    // Two ways to number hyperthreads.
    let (apart, beside): (&[&str], &[&str]) = (&["0,4", "1,5", "2,6", "3,7"], &["0-1", "2-3", "4-5", "6-7"]);
    // CPU 5 is offline.
    let half: &[&str] = &["0,4", "1", "2,6", "3,7"];
    // Two cores with hyperthreads beside four small ones.
    let hybrid: &[&str] = &["0-1", "2-3", "4", "5", "6", "7"];
    for (cores, free, wanted, taken) in [
        (one, "0", 1, Some("0")),
        (one, "", 1, None),
        (two, "0-1", 1, Some("0")),
        (two, "1", 1, Some("1")),
        (four, "1-3", 2, Some("1-2")),
        (four, "1,3", 2, Some("1,3")),
        (four, "1-3", 4, None),
        (four, "1-3", 0, Some("")),
        (apart, "0-7", 2, Some("0,4")),
        (apart, "1-7", 2, Some("1,5")),
        (apart, "1-7", 1, Some("4")),
        (apart, "1-7", 3, Some("1,4-5")),
        (apart, "2,4-5", 2, Some("4-5")),
        (beside, "1-7", 4, Some("2-5")),
        (beside, "1-7", 5, Some("1-5")),
        (half, "0-4,6-7", 1, Some("1")),
        (half, "0-4,6-7", 2, Some("0,4")),
        (half, "0-4,6-7", 7, Some("0-4,6-7")),
        (half, "0-4,6-7", 8, None),
        (hybrid, "1-7", 1, Some("4")),
        (hybrid, "1-7", 3, Some("2-4")),
    ] {
        let got = board(cores).take(&set(free), wanted);
        assert_eq!(got, taken.map(set), "{wanted} of {free} on {cores:?}");
    }
}

#[test]
fn reserved_cpus_are_chosen_or_given() {
    let smt = board(&["0,4", "1,5", "2,6", "3,7"]);
    for (given, count, reserved) in [
        (None, 1, "0"),
        (None, 2, "0,4"),
        (None, 0, "0"),
        (None, 99, "0-7"),
        (Some("3,7"), 2, "3,7"),
        (Some("3,9"), 2, "3"),
        (Some("8-9"), 2, "0,4"),
    ] {
        let given = given.map(set);
        assert_eq!(smt.reserved(given.as_ref(), count), set(reserved), "{given:?} {count}");
    }
}

#[test]
fn guaranteed_containers_with_whole_cpus_have_their_own() {
    let four = board(&["0", "1", "2", "3"]);
    let two = |a, b| pod("u", &[("a", "app", a), ("b", "app", b)]);
    assert_eq!(assigned(&four, "0", &[two("1", "2")]), "u/a=1 u/b=2-3");
    assert_eq!(assigned(&four, "0", &[two("1000m", "500m")]), "u/a=1", "the other shares");
    assert_eq!(assigned(&four, "0", &[two("1.5", "500m")]), "");
    assert_eq!(assigned(&four, "0", &[two("2", "2")]), "2/1");
    assert_eq!(assigned(&four, "0-1", &[two("1", "1"), pod("v", &[("a", "app", "1")])]), "1/0");
    assert_eq!(assigned(&board(&["0"]), "0", &[pod("u", &[("a", "app", "1")])]), "1/0");
    // A board of the kind big.LITTLE: reserving the small cores leaves the large ones.
    let large: Vec<String> = (0..8).map(|cpu: u16| cpu.to_string()).collect();
    let large = board(&large.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(assigned(&large, "0-3", &[two("2", "1")]), "u/a=4-5 u/b=6");
    let mut burstable = two("1", "1");
    burstable.spec.as_mut().unwrap().containers[1].resources = None;
    assert_eq!(assigned(&four, "0", &[burstable]), "");
    let mut whole = two("1", "1");
    whole.spec.as_mut().unwrap().resources =
        serde_json::from_value(json!({"limits": {"cpu": "2", "memory": "32Mi"}})).unwrap();
    assert!(!wants_any(&whole) && wants_any(&two("1", "500m")));
}

#[test]
fn init_containers_pass_their_cpus_on() {
    let six = board(&["0", "1", "2", "3", "4", "5"]);
    let of = |containers: &[(&str, &str, &str)]| assigned(&six, "0", &[pod("u", containers)]);
    assert_eq!(
        of(&[("i", "init", "2"), ("j", "init", "3"), ("a", "app", "1"), ("b", "app", "2")]),
        "u/a=1 u/b=2-3 u/i=1-2 u/j=1-3"
    );
    assert_eq!(of(&[("i", "init", "5"), ("a", "app", "5")]), "u/a=1-5 u/i=1-5");
    assert_eq!(of(&[("s", "sidecar", "2"), ("i", "init", "3"), ("a", "app", "3")]), "u/a=3-5 u/i=3-5 u/s=1-2");
    assert_eq!(of(&[("i", "init", "2"), ("s", "sidecar", "2"), ("a", "app", "2")]), "u/a=3-4 u/i=1-2 u/s=1-2");
    assert_eq!(of(&[("s", "sidecar", "3"), ("a", "app", "3")]), "3/2");
}

#[test]
fn assigned_cpus_stay() {
    let four = board(&["0", "1", "2", "3"]);
    let own = pod("u", &[("a", "app", "1"), ("b", "app", "1")]);
    let held = vec![Assignment { uid: "u".into(), container: "b".into(), cpus: set("1") }];
    let new = assign(&four, &set("0"), &held, &own).unwrap();
    assert_eq!(new, [Assignment { uid: "u".into(), container: "a".into(), cpus: set("2") }]);
    let mut all = held;
    add(&mut all, new[0].clone());
    assert_eq!(all[0].container, "a", "sorted");
    assert_eq!(assign(&four, &set("0"), &all, &own), Ok(Vec::new()));
    let rest = shared(&four.online(), &all);
    assert_eq!(rest, set("0,3"));
    assert_eq!(given(&all, &rest, "u", "a"), Given { cpus: set("2"), exclusive: true });
    assert_eq!(given(&all, &rest, "v", "a"), Given { cpus: set("0,3"), exclusive: false });
}

#[test]
fn shortage_has_the_kubelets_words() {
    let Refusal { reason, message } = Shortage { requested: 2, available: 1 }.refusal();
    assert_eq!(reason, "UnexpectedAdmissionError");
    let why = "not enough cpus available to satisfy request: requested=2, available=1";
    assert_eq!(message, format!("Allocate failed due to {why}, which is unexpected"));
}

#[test]
fn guaranteed_pod_cannot_change_its_cpus() {
    let with = |cpu: &str, pod: &Pod| {
        let mut record = PodRecord::default();
        let list = || BTreeMap::from([("cpu", cpu), ("memory", "16Mi")].map(|(a, b)| (a.to_owned(), b.to_owned())));
        let resources = Some(Resources { requests: list(), limits: list() });
        record.containers.insert("a".into(), ContainerRecord { resources, ..ContainerRecord::default() });
        resize_refusal(pod, &record).map(|refusal| refusal.reason)
    };
    let own = pod("u", &[("a", "app", "2")]);
    assert_eq!(with("1", &own).as_deref(), Some("Infeasible"));
    assert_eq!(with("2000m", &own), None, "only the memory may change");
    let mut burstable = pod("u", &[("a", "app", "2")]);
    burstable.spec.as_mut().unwrap().containers[0].resources =
        serde_json::from_value(json!({"requests": {"cpu": "2"}})).unwrap();
    assert_eq!(with("1", &burstable), None);
}
