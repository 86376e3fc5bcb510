//! Invariant: no device is in the files of two pods that live, whenever the daemon dies.

use std::collections::BTreeMap;

use sampan_plugins_control::{DeviceNode, Edits, Mount, Pair};
use serde_json::json;

use super::*;

const GPU: &str = "example.com/gpu";

/// What container `c` of the pod has of a resource.
fn some(uid: &str, resource: &str, ids: &[&str]) -> Allocation {
    let edits = if ids.is_empty() { Value::Null } else { serde_json::to_value(Edits::default()).unwrap() };
    Allocation {
        uid: uid.to_owned(),
        container: "c".to_owned(),
        resource: resource.to_owned(),
        ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        pre_start: false,
        edits,
    }
}

fn full(uid: &str) -> Allocation {
    let text = |text: &str| text.to_owned();
    let edits = Edits {
        env: vec![Pair { name: text("GPU"), value: text("0") }],
        mounts: vec![Mount { container: text("/c"), host: text("/h"), read_only: true, options: vec![text("nodev")] }],
        devices: vec![DeviceNode {
            container: text("/dev/gpu"),
            host: text("/dev/null"),
            permissions: text("rw"),
            number: None,
            mode: Some(0o600),
            uid: None,
            gid: None,
        }],
        annotations: vec![Pair { name: text("example.com/a"), value: text("b") }],
    };
    Allocation { pre_start: true, edits: serde_json::to_value(edits).unwrap(), ..some(uid, GPU, &["0", "1"]) }
}

/// Devices that are in the files of more than one pod.
fn twice(kept: &Kept) -> Vec<String> {
    let mut holders = BTreeMap::<&str, BTreeSet<&str>>::new();
    for one in &kept.all {
        for id in &one.ids {
            holders.entry(id).or_default().insert(&one.uid);
        }
    }
    holders.into_iter().filter(|(_, pods)| pods.len() > 1).map(|(id, _)| id.to_owned()).collect()
}

fn folder(pods: &[&str]) -> (tempfile::TempDir, Paths) {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    for uid in pods {
        fs::create_dir_all(paths.pod(uid)).unwrap();
    }
    (dir, paths)
}

#[test]
fn allocations_are_there_after_a_restart() {
    let (_dir, paths) = folder(&["a", "b"]);
    let mut kept = Kept::load(&paths);
    kept.put(some("b", GPU, &[]));
    kept.put(some("a", "example.com/tpu", &["t"]));
    kept.put(full("a"));
    assert!(Kept::load(&paths).all.is_empty(), "not saved yet");
    kept.save(&paths).unwrap();
    let again = Kept::load(&paths);
    assert_eq!(again.all, kept.all);
    assert_eq!(again.get("a", "c", GPU), Some(&full("a")));
    assert_eq!((again.of("a", "c").len(), again.of("a", "d").len(), again.of_pod("b").len()), (2, 0, 1));
    assert_eq!(again.held(GPU, &|_| true), BTreeSet::from(["0", "1"]));
    assert!(again.held(GPU, &|uid| uid == "b").is_empty());
    let text: Value = serde_json::from_slice(&fs::read(paths.plugin_devices("a")).unwrap()).unwrap();
    assert_eq!(text["c"][GPU]["ids"], json!(["0", "1"]));
    assert_eq!(text["c"][GPU]["env"], json!([{"name": "GPU", "value": "0"}]));

    assert!(kept.free("a", &paths) && !kept.free("a", &paths));
    assert!(!paths.plugin_devices("a").exists() && kept.held(GPU, &|_| true).is_empty());
    kept.retain(&|uid| uid == "a");
    assert!(!kept.has("b"));
}

#[test]
fn file_that_is_not_whole_counts_as_none() {
    let whole = text(&[full("a")]);
    let mut kept = Kept::default();
    assert!(kept.take("a", &whole));
    assert_eq!((kept.get("a", "c", GPU), kept.is_damaged("a")), (Some(&full("a")), false));
    let others = [
        "[]",
        "null",
        r#"{"c":7}"#,
        r#"{"c":{"r":{"ids":["a"],"preStart":false}}}"#,
        r#"{"c":{"r":{"ids":[7]}}}"#,
        r#"{"c":{"r":{"ids":[],"preStart":false},"s":{"ids":[]}}}"#,
    ];
    for wrong in (0..whole.len()).map(|cut| &whole[..cut]).chain(others.map(str::as_bytes)) {
        let mut kept = Kept::default();
        let shown = String::from_utf8_lossy(wrong);
        assert!(!kept.take("a", wrong) && kept.take("b", &whole), "{shown}");
        assert!(!kept.has("a") && kept.is_damaged("a") && kept.has("b") && !kept.is_damaged("b"), "{shown}");
        kept.retain(&|uid| uid == "b");
        assert!(!kept.is_damaged("a"));
    }
}

/// One device goes from pod to pod in every order of allocation, save, end and crash.
#[test]
fn no_crash_leaves_a_device_with_two_pods() {
    let pods = ["a", "b", "c"];
    for seed in 0..200_u32 {
        let (_dir, paths) = folder(&pods);
        let mut kept = Kept::load(&paths);
        let mut number = seed;
        for _ in 0..16 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let uid = pods[usize::try_from((number >> 16) % 3).unwrap()];
            match (number >> 24) % 5 {
                // The plugin has chosen among what is free, also for a container whose device is gone.
                0 | 1 => {
                    let held = kept.held(GPU, &|_| true);
                    let free = ["0", "1", "2"].into_iter().find(|id| !held.contains(id)).map(str::to_owned);
                    if let Some(id) = free {
                        kept.put(some(uid, GPU, &[&id]));
                    }
                }
                2 => kept.save(&paths).unwrap(),
                3 => drop(kept.free(uid, &paths)),
                _ => kept = Kept::load(&paths),
            }
            assert_eq!(twice(&kept), [""; 0], "seed {seed}");
            assert_eq!(twice(&Kept::load(&paths)), [""; 0], "seed {seed}, after a crash");
        }
    }
}

#[test]
fn replaced_device_is_held_until_the_file_is_written() {
    let (_dir, paths) = folder(&["a"]);
    let mut kept = Kept::default();
    kept.put(some("a", GPU, &["0"]));
    kept.save(&paths).unwrap();
    kept.put(some("a", GPU, &["1"]));
    assert_eq!(kept.held(GPU, &|_| true), BTreeSet::from(["0", "1"]));
    kept.save(&paths).unwrap();
    assert_eq!(kept.held(GPU, &|_| true), BTreeSet::from(["1"]));
    kept.put(some("a", GPU, &["2"]));
    assert!(kept.free("a", &paths) && kept.held(GPU, &|_| true).is_empty());
}

#[test]
fn pod_that_cannot_be_saved_keeps_its_devices() {
    let (_dir, paths) = folder(&["b"]);
    let mut kept = Kept::default();
    kept.put(some("a", GPU, &["0"]));
    kept.put(some("b", GPU, &["1"]));
    assert!(kept.save(&paths).is_err(), "there is no folder of this pod");
    assert!(kept.save(&paths).is_err(), "it is not forgotten");
    assert_eq!(kept.held(GPU, &|_| true), BTreeSet::from(["0", "1"]));
    kept.free("a", &paths);
    kept.save(&paths).unwrap();
    assert_eq!(Kept::load(&paths).held(GPU, &|_| true), BTreeSet::from(["1"]));
}

#[test]
fn init_containers_pass_their_devices_on() {
    let container = |name: &str, policy: Value| json!({"name": name, "restartPolicy": policy});
    let spec = json!({
        "initContainers": [container("i", Value::Null), container("j", Value::Null), container("s", "Always".into())],
        "containers": [container("c", Value::Null), container("d", Value::Null)],
    });
    let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": spec})).unwrap();
    let mut kept = Kept::default();
    let of = |name: &str, ids: &[&str]| Allocation { container: name.to_owned(), ..some("u", GPU, ids) };
    assert!(kept.lent(&pod, "c", GPU).is_empty());
    kept.put(of("i", &["0", "1"]));
    assert_eq!(kept.lent(&pod, "j", GPU), ["0", "1"]);
    kept.put(of("j", &["1", "2"]));
    kept.put(of("s", &["2"]));
    assert_eq!(kept.lent(&pod, "c", GPU), ["0", "1"], "a sidecar runs on");
    kept.put(of("c", &["1"]));
    assert_eq!(kept.lent(&pod, "d", GPU), ["0"], "each goes to one container");
    assert!(kept.lent(&pod, "d", "example.com/tpu").is_empty());
}
