//! Containers and pods that the store does not know, before and after a complete list.

use std::collections::BTreeMap;

use super::super::bench::{Bench, pod};
use super::state::Recovery;
use super::*;
use crate::launch::Launch;
use crate::launch::devices::kept::Allocation;
use crate::pod::record::{ContainerState as Recorded, PodSource};
use crate::sys::cgroup::{Cgroups, PodCgroupClass};

/// A container that runs, as the monitor lists it.
fn listed(id: &str) -> ContainerState {
    ContainerState { id: id.to_owned(), phase: Phase::Running { pid: 7, started_at: String::new() } }
}

fn record(bench: &Bench, uid: &str) -> PodRecord {
    PodRecord::new(uid, "ns", uid, PodSource::Api, &bench.node.cx.clock.now())
}

fn kept(uid: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(uid.to_owned(), "its row is damaged".to_owned())])
}

#[test]
fn unknown_container_runs_on_until_the_list_is_complete() {
    let mut bench = Bench::new();
    bench.add("u");
    let own = bench.container("u", Recorded::waiting());
    assert!(!bench.node.is_stranger(&listed("other")), "the store is complete");
    bench.node.cx.recovery = Recovery::new(true);
    assert!(bench.node.is_stranger(&listed("other")) && !bench.node.is_stranger(&listed(&own)));
    assert_eq!(bench.node.cx.recovery.strangers.keys().collect::<Vec<_>>(), ["other"]);
    bench.node.listed().unwrap();
    assert!(bench.node.cx.recovery.strangers.is_empty() && !bench.node.is_stranger(&listed("other")));
    assert!(bench.node.cx.pods.contains("u"));
}

#[test]
fn complete_list_removes_rows_that_cannot_be_read() {
    let mut bench = Bench::new();
    let lost = record(&bench, "lost");
    let damage = |writer: &crate::store::Writer<'_>| {
        writer.put_pod(&lost)?;
        writer.set_fact(Fact::Incomplete, "damaged")
    };
    bench.node.cx.store.write(damage).unwrap();
    bench.node.cx.recovery.keep(kept("lost"));
    bench.node.listed().unwrap();
    assert_eq!(bench.node.cx.store.pod_record("lost").unwrap(), None);
    assert!(!bench.node.cx.store.is_incomplete().unwrap() && !bench.node.cx.recovery.is_under_way());
}

#[test]
fn complete_list_sweeps_logs_of_unknown_pods_and_no_others() {
    let mut bench = Bench::new();
    bench.add("u");
    let paths = bench.node.cx.paths.clone();
    let logs = ["ns_u_u", "ns_old_0a-1", "ns_kubelet_0b-2"].map(|name| paths.all_pod_logs().join(name));
    let folders = ["u", "0a-1"].map(|uid| paths.pod(uid));
    for folder in logs.iter().chain(&folders) {
        std::fs::create_dir_all(folder).unwrap();
    }
    bench.node.listed().unwrap();
    assert_eq!(logs.map(|folder| folder.exists()), [true, false, true]);
    assert_eq!(folders.map(|folder| folder.exists()), [true, false]);
}

#[test]
fn complete_list_frees_devices_of_pods_that_are_gone() {
    let mut bench = Bench::new();
    let (paths, config) = (bench.node.cx.paths.clone(), bench.node.cx.config.clone());
    let mount = paths.root().join("cgroup");
    bench.node.launch = Launch::with_cgroups(&paths, config, Cgroups::at(&mount));
    bench.add("u");
    for uid in ["u", "hangs", "gone"] {
        std::fs::create_dir_all(paths.pod(uid)).unwrap();
        let (uid, ids) = (uid.to_owned(), vec![uid.to_owned()]);
        bench.node.launch.containers.plugins.kept.put(Allocation { uid, ids, ..Allocation::default() });
    }
    let cgroup = bench.node.launch.base.cgroups.pod_path(PodCgroupClass::BestEffort, "hangs");
    let process = mount.join(cgroup.trim_start_matches('/')).join("process");
    std::fs::create_dir_all(process.parent().unwrap()).unwrap();
    std::fs::write(&process, "").unwrap();
    let has = |bench: &Bench, uid: &str| {
        (bench.node.launch.containers.plugins.kept.has(uid), bench.node.cx.paths.pod(uid).exists())
    };
    bench.node.listed().unwrap();
    assert_eq!(["u", "hangs", "gone"].map(|uid| has(&bench, uid)), [(true, true), (true, true), (false, false)]);
    std::fs::remove_file(process).unwrap();
    bench.node.listed().unwrap();
    assert_eq!(["u", "hangs"].map(|uid| has(&bench, uid)), [(true, true), (false, false)]);
}

#[test]
fn pod_whose_object_comes_again_keeps_its_record_and_containers() {
    let mut bench = Bench::new();
    let mut record = record(&bench, "u");
    record.admitted = true;
    record.containers.insert("c".to_owned(), ContainerRecord::new(Default::default()));
    bench.node.cx.store.write(|writer| writer.put_pod(&record)).unwrap();
    let id = container_id("u", "c", 0);
    bench.node.cx.recovery.keep(kept("u"));
    for id in [id.as_str(), "other"] {
        bench.node.cx.recovery.strangers.insert(id.to_owned(), listed(id));
    }
    bench.node.pod_wanted(pod("u", "u"), None).unwrap();
    assert!(bench.record("u").admitted && !bench.node.cx.recovery.is_under_way());
    assert!(bench.node.containers.get(&id).is_some());
    assert_eq!(bench.node.cx.recovery.strangers.keys().collect::<Vec<_>>(), ["other"]);
    bench.node.pod_wanted(pod("new", "new"), None).unwrap();
    assert!(!bench.record("new").admitted, "another pod begins anew");
}

#[test]
fn pod_whose_record_the_store_cannot_read_does_not_begin_anew() {
    let mut bench = Bench::new();
    bench.node.cx.recovery.keep(kept("u"));
    bench.node.cx.store.lose_table("pods");
    assert!(bench.node.pod_wanted(pod("u", "u"), None).is_err());
    assert!(!bench.node.cx.pods.contains("u"));
}

#[test]
fn first_attempt_of_a_lost_pod_has_an_id_that_the_monitor_does_not_know() {
    let mut bench = Bench::new();
    let mut record = record(&bench, "u");
    bench.node.end_unattended(&pod("u", "u"), &mut record);
    assert!(record.containers.is_empty(), "nothing is known of it");
    for attempt in [0, 3] {
        let id = container_id("u", "c", attempt);
        bench.node.cx.recovery.strangers.insert(id.clone(), listed(&id));
    }
    bench.node.end_unattended(&pod("u", "u"), &mut record);
    assert_eq!(record.containers["c"].attempt, 4);
}

#[test]
fn damaged_store_asks_for_a_list_instead_of_changes() {
    for (recovery, resumes) in [(Recovery::new(false), true), (Recovery::new(true), false)] {
        let mut bench = Bench::new();
        let position = |writer: &crate::store::Writer<'_>| {
            writer.set_fact(Fact::Stream, "s")?;
            writer.set_fact(Fact::LastSequence, "7")
        };
        bench.node.cx.store.write(position).unwrap();
        bench.node.cx.recovery = recovery;
        bench.node.begin_recovery().unwrap();
        let facts = [Fact::Stream, Fact::LastSequence].map(|fact| bench.node.cx.store.fact(fact).unwrap().is_some());
        assert_eq!(facts, [resumes; 2]);
    }
}
