//! Invariant: no device is in the files of two pods that live, whenever the daemon dies.

use std::collections::BTreeMap;

use sampan_plugins_control::{DeviceNode, Mount, Pair};
use serde_json::json;

use super::*;

const GPU: &str = "example.com/gpu";

fn some(ids: &[&str]) -> Allocation {
    Allocation { ids: ids.iter().map(|id| (*id).to_owned()).collect(), ..Allocation::default() }
}

fn full() -> Allocation {
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
    Allocation { pre_start: true, edits, ..some(&["0", "1"]) }
}

/// Devices that are in the files of more than one pod.
fn twice(kept: &Kept) -> Vec<String> {
    let mut holders = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (uid, of_pod) in kept.pods.iter() {
        for id in of_pod.values().flat_map(|of| of.values()).flat_map(|one| &one.ids) {
            holders.entry(id).or_default().insert(uid);
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
    kept.put("a", "c", GPU, full());
    kept.put("a", "c", "example.com/tpu", some(&["t"]));
    kept.put("b", "c", GPU, some(&[]));
    assert!(Kept::load(&paths).pods.is_empty(), "not saved yet");
    kept.save(&paths).unwrap();
    let again = Kept::load(&paths);
    assert_eq!(again.pods, kept.pods);
    assert_eq!(again.get("a", "c", GPU), Some(&full()));
    assert_eq!(again.held(GPU, |_| true), BTreeSet::from(["0", "1"]));
    assert!(again.held(GPU, |uid| uid == "b").is_empty());
    let text: Value = serde_json::from_slice(&fs::read(paths.plugin_devices("a")).unwrap()).unwrap();
    assert_eq!(text["c"][GPU]["ids"], json!(["0", "1"]));
    assert_eq!(text["c"][GPU]["env"], json!([{"name": "GPU", "value": "0"}]));

    assert!(kept.free("a", &paths) && !kept.free("a", &paths));
    assert!(!paths.plugin_devices("a").exists() && kept.held(GPU, |_| true).is_empty());
    kept.retain(|uid| uid == "a");
    assert!(!kept.has("b"));
}

#[test]
fn file_that_is_not_whole_counts_as_none() {
    let whole = text(&[("c".to_owned(), [(GPU.to_owned(), full())].into_iter().collect())].into_iter().collect());
    let whole = whole.unwrap();
    let file = |uid: &str, text: &[u8]| (uid.to_owned(), text.to_vec());
    let (kept, wrong) = Kept::rebuild([file("a", &whole)].into_iter());
    assert_eq!((kept.get("a", "c", GPU), wrong.len()), (Some(&full()), 0));
    for cut in 0..whole.len() {
        let (kept, wrong) = Kept::rebuild([file("a", &whole[..cut]), file("b", &whole)].into_iter());
        assert!(!kept.has("a") && kept.has("b"), "{cut}");
        assert_eq!(wrong, ["a"]);
    }
    for other in
        ["[]", "null", r#"{"c":7}"#, r#"{"c":{"r":{"ids":["a"],"preStart":false}}}"#, r#"{"c":{"r":{"ids":[7]}}}"#]
    {
        assert_eq!(Kept::rebuild([file("a", other.as_bytes())].into_iter()).1, ["a"], "{other}");
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
        for _ in 0..12 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let uid = pods[usize::try_from((number >> 16) % 3).unwrap()];
            match (number >> 24) % 5 {
                // The plugin has chosen among what is free.
                0 | 1 if !kept.has(uid) => {
                    let held = kept.held(GPU, |_| true);
                    let free = ["0", "1"].into_iter().find(|id| !held.contains(id)).map(str::to_owned);
                    if let Some(id) = free {
                        kept.put(uid, "c", GPU, some(&[&id]));
                    }
                }
                2 => kept.save(&paths).unwrap(),
                3 => drop(kept.free(uid, &paths)),
                0 | 1 => {}
                _ => kept = Kept::load(&paths),
            }
            assert_eq!(twice(&kept), [""; 0], "seed {seed}");
            assert_eq!(twice(&Kept::load(&paths)), [""; 0], "seed {seed}, after a crash");
        }
    }
}

#[test]
fn pod_that_cannot_be_saved_keeps_its_devices() {
    let (_dir, paths) = folder(&["b"]);
    let mut kept = Kept::default();
    kept.put("a", "c", GPU, some(&["0"]));
    kept.put("b", "c", GPU, some(&["1"]));
    assert!(kept.save(&paths).is_err(), "there is no folder of this pod");
    assert!(kept.save(&paths).is_err(), "it is not forgotten");
    assert_eq!(kept.held(GPU, |_| true), BTreeSet::from(["0", "1"]));
    kept.free("a", &paths);
    kept.save(&paths).unwrap();
    assert_eq!(Kept::load(&paths).held(GPU, |_| true), BTreeSet::from(["1"]));
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
    assert!(kept.lent(&pod, "c", GPU).is_empty());
    kept.put("u", "i", GPU, some(&["0", "1"]));
    assert_eq!(kept.lent(&pod, "j", GPU), ["0", "1"]);
    kept.put("u", "j", GPU, some(&["1", "2"]));
    kept.put("u", "s", GPU, some(&["2"]));
    assert_eq!(kept.lent(&pod, "c", GPU), ["0", "1"], "a sidecar runs on");
    kept.put("u", "c", GPU, some(&["1"]));
    assert_eq!(kept.lent(&pod, "d", GPU), ["0"], "each goes to one container");
    assert!(kept.lent(&pod, "d", "example.com/tpu").is_empty());
}
