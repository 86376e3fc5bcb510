//! Assigned CPUs over restarts, on boards made of files.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// A board: `cpus` online, with `siblings` by CPU.
fn board(online: &str, siblings: &[(u16, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("online"), format!("{online}\n")).unwrap();
    for (cpu, list) in siblings {
        let topology = folder.path().join(format!("cpu{cpu}/topology"));
        std::fs::create_dir_all(&topology).unwrap();
        std::fs::write(topology.join("thread_siblings_list"), format!("{list}\n")).unwrap();
    }
    folder
}

fn open(board: &TempDir, given: Option<&str>) -> Cpus {
    Cpus::with(whole(board), file(board), given.and_then(CpuSet::parse), 500).unwrap()
}

/// A board without limits by cgroups.
fn whole(board: &TempDir) -> Board {
    Board { sys: board.path().to_owned(), within: Vec::new() }
}

fn file(board: &TempDir) -> PathBuf {
    board.path().join("cpu_manager_state")
}

fn stored(board: &TempDir) -> Value {
    serde_json::from_slice(&std::fs::read(file(board)).unwrap()).unwrap()
}

fn pod(uid: &str, cpu: &str) -> Pod {
    let limits = json!({"cpu": cpu, "memory": "16Mi"});
    let container = json!({"name": "c", "resources": {"limits": limits}});
    let metadata = json!({"uid": uid, "name": uid, "namespace": "ns"});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": [container]}})).unwrap()
}

fn holders(pods: &[Pod]) -> Vec<Holder<'_>> {
    pods.iter().map(|pod| (Cow::Borrowed(pod), true)).collect()
}

fn list_of(cpus: &Cpus, uid: &str) -> String {
    cpus.of(uid, "c").unwrap().cpus.to_string()
}

#[test]
fn cores_are_read_without_offline_cpus() {
    let smt = board("0-2,4-7", &[(0, "0,4"), (1, "1,5"), (2, "2,6"), (4, "0,4"), (5, "1,5"), (6, "2,6"), (7, "3,7")]);
    let cores = ["0,4", "1,5", "2,6", "7"].map(|core| CpuSet::parse(core).unwrap());
    assert_eq!(whole(&smt).topology(), Some(Topology::new(cores.to_vec())));
    let plain = board("0-1", &[(1, "nonsense")]);
    assert_eq!(whole(&plain).topology(), Some(Topology::new(vec![CpuSet::of(0), CpuSet::of(1)])));
    for wrong in ["", "none"] {
        assert_eq!(whole(&board(wrong, &[])).topology(), None);
    }
    let nowhere = Board { sys: PathBuf::from("/nowhere"), within: Vec::new() };
    assert!(Cpus::with(nowhere, PathBuf::new(), None, 0).unwrap_err().contains("/nowhere"));
}

#[test]
fn without_the_policy_nothing_is_kept_or_given() {
    let folder = tempfile::tempdir().unwrap();
    let paths = crate::paths::Paths::new(folder.path());
    let config = crate::config::ConfigFile::parse("node-name: n", Path::new("c")).unwrap();
    let config = crate::config::Config::from_file(config, Path::new("c"), folder.path(), &Default::default()).unwrap();
    let base = Base::new(&paths, std::rc::Rc::new(config), crate::sys::cgroup::Cgroups::absent());
    let mut cpus = Cpus::open(&base, Path::new("/nowhere")).unwrap();
    let own = [pod("u", "1")];
    assert!(cpus.restore(&holders(&own), true).is_empty() && cpus.look(&holders(&own), true).is_empty());
    cpus.take(&own[0]);
    cpus.free("v");
    cpus.started();
    assert!(!cpus.is_on() && !cpus.take_changed());
    assert_eq!((cpus.of("u", "c"), cpus.refusal(&pod("u", "99"), |_| true)), (None, None));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file");
}

#[test]
fn assignments_outlive_the_daemon() {
    let board = board("0-3", &[]);
    let mut cpus = open(&board, None);
    assert!(cpus.restore(&[], true).is_empty());
    assert_eq!(stored(&board)["defaultCpuSet"], "0-3");
    cpus.take_changed();
    let pods = [pod("u", "1"), pod("v", "2"), pod("w", "500m")];
    for one in &pods {
        assert_eq!(cpus.refusal(one, |_| true), None);
        cpus.take(one);
    }
    assert!(cpus.take_changed() && !cpus.take_changed());
    cpus.started();
    assert!(cpus.take_changed(), "a container may have been prepared before the last change");
    let state = stored(&board);
    assert_eq!(
        (&state["defaultCpuSet"], &state["entries"]),
        (&json!("0"), &json!({"u": {"c": "1"}, "v": {"c": "2-3"}}))
    );
    let refusal = cpus.refusal(&pod("x", "1"), |_| true).unwrap();
    assert!(refusal.message.contains("requested=1, available=0"), "{refusal:?}");
    assert_eq!(cpus.refusal(&pod("x", "1"), |uid| uid != "u"), None, "when u has ended");

    let mut damaged = open(&board, None);
    assert!(damaged.restore(&[], false).is_empty());
    assert_eq!(list_of(&damaged, "u"), "1", "the store may not know all pods");
    let mut again = open(&board, None);
    assert!(again.restore(&holders(&pods[1..]), true).is_empty());
    assert_eq!((list_of(&again, "v").as_str(), list_of(&again, "w").as_str()), ("2-3", "0-1"));
    assert!(!again.of("w", "c").unwrap().exclusive && again.of("v", "c").unwrap().exclusive);
    assert_eq!(stored(&board)["entries"], json!({"v": {"c": "2-3"}}), "u is in no store");
    again.free("v");
    assert_eq!(stored(&board).get("entries"), None);
    assert_eq!(list_of(&again, "w"), "0-3");
}

#[test]
fn damaged_state_is_set_aside() {
    let board = board("0-3", &[]);
    std::fs::write(file(&board), r#"{"policyName": "static""#).unwrap();
    let pods = [pod("u", "2")];
    let told = open(&board, None).restore(&holders(&pods), true);
    assert!(matches!(told.as_slice(), [one] if one.contains("assigned anew") && one.contains("EOF")), "{told:?}");
    assert_eq!(stored(&board)["entries"], json!({"u": {"c": "1-2"}}));
    assert!(file(&board).with_extension("old").exists());
}

#[test]
fn offline_cpus_are_taken_from_nobody_silently() {
    let board = board("0-3", &[]);
    let mut cpus = open(&board, Some("3"));
    cpus.restore(&[], true);
    let pods = [pod("u", "1"), pod("v", "2")];
    pods.iter().for_each(|one| cpus.take(one));
    assert_eq!((list_of(&cpus, "u"), list_of(&cpus, "v")), ("0".to_owned(), "1-2".to_owned()));
    assert!(cpus.look(&holders(&pods), true).is_empty());
    std::fs::write(board.path().join("online"), "0,2-3\n").unwrap();
    // At the next start, and while the daemon runs.
    let told = [open(&board, Some("3")).restore(&holders(&pods), true), cpus.look(&holders(&pods), true)];
    for told in told {
        let shortage =
            "pod v_ns(v) shares its CPUs: not enough cpus available to satisfy request: requested=2, available=1";
        assert!(
            matches!(told.as_slice(), [anew, short] if anew.contains("0,2-3 are online") && short == shortage),
            "{told:?}"
        );
    }
    assert_eq!((list_of(&cpus, "u"), list_of(&cpus, "v")), ("0".to_owned(), "2-3".to_owned()));
    assert!(!cpus.of("v", "c").unwrap().exclusive && cpus.take_changed());
    // It is back: what was short has its CPUs again, and the reserved one is the same.
    std::fs::write(board.path().join("online"), "0-3\n").unwrap();
    assert!(cpus.look(&holders(&pods), true).is_empty());
    assert_eq!((list_of(&cpus, "v").as_str(), cpus.of("v", "c").unwrap().exclusive), ("1-2", true));
}

#[test]
fn other_cpus_that_come_and_go_move_no_exclusive_ones() {
    let board = board("0-3", &[]);
    let mut cpus = open(&board, Some("0"));
    cpus.restore(&[], true);
    let pods = [pod("u", "1"), pod("v", "1")];
    pods.iter().for_each(|one| cpus.take(one));
    cpus.free("u");
    cpus.take_changed();
    let left = &pods[1..];
    for (online, shared) in [("0-2", "0-1"), ("0-3", "0-1,3")] {
        std::fs::write(board.path().join("online"), online).unwrap();
        assert!(cpus.look(&holders(left), true).is_empty(), "{online}: nothing to report");
        assert_eq!((list_of(&cpus, "v").as_str(), list_of(&cpus, "w").as_str()), ("2", shared), "{online}");
        assert_eq!(stored(&board)["defaultCpuSet"], shared, "{online}: no start may find an older one");
        assert!(cpus.take_changed());
    }
}

#[test]
fn pod_that_loses_a_cpu_has_all_assigned_anew() {
    let board = board("0-3", &[]);
    let mut cpus = open(&board, Some("0"));
    cpus.restore(&[], true);
    let limits = |cpu: &str| json!({"limits": {"cpu": cpu, "memory": "16Mi"}});
    let mut own = pod("u", "1");
    let init = json!([{"name": "i", "resources": limits("2")}]);
    own.spec.as_mut().unwrap().init_containers = serde_json::from_value(init).unwrap();
    cpus.take(&own);
    assert_eq!(stored(&board)["entries"], json!({"u": {"c": "1", "i": "1-2"}}));
    std::fs::write(board.path().join("online"), "0-1,3").unwrap();
    let told = cpus.look(&[(Cow::Borrowed(&own), true)], true);
    assert!(matches!(told.as_slice(), [one] if one.ends_with("before 0-3 were: u")), "{told:?}");
    assert_eq!(stored(&board)["entries"], json!({"u": {"c": "1", "i": "1,3"}}));
}

#[test]
fn cpus_outside_of_the_nodes_cgroup_are_not_given() {
    let folder = board("0-7", &[(2, "2,6"), (3, "3,7")]);
    let [own, above] = ["own", "above"].map(|name| folder.path().join(name));
    let bounded = Board { sys: folder.path().to_owned(), within: vec![own.clone(), above.clone()] };
    assert_eq!(bounded.usable(), CpuSet::parse("0-7"), "the kernel shows no limit");
    std::fs::write(&above, "2-3,6,9\n").unwrap();
    std::fs::write(&own, "\n").unwrap();
    assert_eq!(bounded.usable(), CpuSet::parse("2-3,6"), "an empty set is that of the parent");
    std::fs::write(&own, "3,6\n").unwrap();
    let cores = ["3", "6"].map(|core| CpuSet::parse(core).unwrap());
    assert_eq!(bounded.topology(), Some(Topology::new(cores.to_vec())));
    let mut cpus = Cpus::with(bounded, file(&folder), None, 1000).unwrap();
    cpus.restore(&[], true);
    cpus.take(&pod("u", "1"));
    assert_eq!((list_of(&cpus, "u").as_str(), list_of(&cpus, "w").as_str()), ("6", "3"));
    std::fs::write(&own, "3\n").unwrap();
    assert_eq!(cpus.look(&holders(&[pod("u", "1")]), true).len(), 2, "it has none any more, and there is none");
    assert!(!cpus.of("u", "c").unwrap().exclusive);
}

#[test]
fn reserved_cpus_that_are_not_there_are_told() {
    let board = board("0-3", &[]);
    for (given, warning) in [
        (None, None),
        (Some("0-1"), None),
        (Some("3,8"), Some("reserved.cpus: 8 cannot be used here; 3 is reserved")),
        (Some("8-9"), Some("reserved.cpus: 8-9 cannot be used here; 0 is reserved")),
    ] {
        assert_eq!(open(&board, given).reserve_warning().as_deref(), warning);
    }
    assert_eq!(Cpus::default().reserve_warning(), None);
}
