//! Assignment of devices.

use serde_json::{Value, json};

use super::*;
use crate::pod::extended_resources::{admit, is_extended};

const GPIO: &str = "sampan.dev/gpio";

fn pod(uid: &str, init: Value, count: u64) -> Pod {
    let asks = |count: u64| json!({"limits": {GPIO: count.to_string(), "cpu": "1"}});
    let mut spec = json!({"containers": [{"name": "c", "resources": asks(count)}]});
    if !init.is_null() {
        spec["initContainers"] = json!([{"name": "i", "restartPolicy": init["policy"], "resources": asks(count)}]);
    }
    serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap()
}

fn container(pod: &Pod, init: bool) -> &Container {
    let spec = pod.spec.as_ref().unwrap();
    if init { &spec.init_containers.as_ref().unwrap()[0] } else { &spec.containers[0] }
}

/// Two devices that every machine has.
fn classes(share: u32) -> BTreeMap<String, DeviceClass> {
    let patterns = vec!["/dev/zero".to_owned(), "/dev/nul?".to_owned(), "/dev/none*".to_owned()];
    BTreeMap::from([(GPIO.to_owned(), DeviceClass { patterns, share: share.into(), access: "rw".into() })])
}

fn names(grants: io::Result<Vec<Grant>>) -> Vec<String> {
    grants.unwrap().iter().map(|grant| grant.path.display().to_string()).collect()
}

#[test]
fn devices_are_allocated_once_and_kept_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    let (a, b, c) = (pod("a", Value::Null, 1), pod("b", Value::Null, 1), pod("c", Value::Null, 1));
    for uid in ["a", "b", "c"] {
        std::fs::create_dir_all(paths.pod(uid)).unwrap();
    }
    let mut devices = Devices::load(classes(1), &paths);
    assert_eq!(devices.capacity(), BTreeMap::from([(GPIO.to_owned(), 2)]));
    assert_eq!(names(devices.allocate(&a, container(&a, false), &paths)), ["/dev/zero"]);
    assert_eq!(names(devices.allocate(&b, container(&b, false), &paths)), ["/dev/null"]);
    let none = devices.allocate(&c, container(&c, false), &paths).unwrap_err();
    assert_eq!(none.to_string(), "sampan.dev/gpio: 1 wanted, 0 of 2 present are free");

    let mut devices = Devices::load(classes(1), &paths);
    assert_eq!(names(devices.allocate(&b, container(&b, false), &paths)), ["/dev/null"]);
    devices.free("a", &paths);
    assert!(!paths.pod("a").join("devices.json").exists());
    assert_eq!(names(devices.allocate(&c, container(&c, false), &paths)), ["/dev/zero"]);
}

#[test]
fn unknown_resource_is_not_allocated() {
    let dir = tempfile::tempdir().unwrap();
    let pod = pod("a", Value::Null, 1);
    let mut devices = Devices::load(BTreeMap::new(), &Paths::new(dir.path()));
    assert!(names(devices.allocate(&pod, container(&pod, false), &Paths::new(dir.path()))).is_empty());
}

#[test]
fn shared_ones_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    let mut devices = Devices::load(classes(2), &paths);
    assert_eq!(devices.capacity()[GPIO], 4);
    let got: Vec<Vec<String>> = ["a", "b", "c"]
        .into_iter()
        .map(|uid| {
            std::fs::create_dir_all(paths.pod(uid)).unwrap();
            let pod = pod(uid, Value::Null, 1);
            names(devices.allocate(&pod, container(&pod, false), &paths))
        })
        .collect();
    assert_eq!(got, [["/dev/zero"], ["/dev/zero"], ["/dev/null"]]);
}

#[test]
fn init_containers_lend_theirs_on_and_sidecars_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    for (uid, policy, ok) in [("a", Value::Null, true), ("b", json!("Always"), false)] {
        std::fs::create_dir_all(paths.pod(uid)).unwrap();
        let pod = pod(uid, json!({"policy": policy}), 2);
        let mut devices = Devices::load(classes(1), &paths);
        assert_eq!(names(devices.allocate(&pod, container(&pod, true), &paths)).len(), 2);
        assert_eq!(devices.allocate(&pod, container(&pod, false), &paths).is_ok(), ok, "{uid}");
        let refused = admit(&pod, [].into_iter(), || devices.capacity());
        assert_eq!(refused.is_none(), ok);
        devices.free(uid, &paths);
    }
}

#[test]
fn refused_in_the_kubelets_words() {
    let (a, b) = (pod("a", Value::Null, 1), pod("b", Value::Null, 2));
    let has = || BTreeMap::from([(GPIO.to_owned(), 2)]);
    assert_eq!(admit(&a, [&a].into_iter(), has), None);
    let refused = admit(&b, [&a].into_iter(), has).unwrap();
    assert_eq!(refused.reason, "OutOfsampan.dev/gpio");
    assert_eq!(
        refused.message,
        "Node didn't have enough resource: sampan.dev/gpio, requested: 2, used: 1, capacity: 2"
    );
    let foreign = || BTreeMap::from([("example.com/other".to_owned(), 1)]);
    assert_eq!(
        admit(&b, [&a].into_iter(), foreign),
        None,
        "what the node does not know of is somebody else's to count"
    );
    assert!(is_extended("a.b/c") && !is_extended("cpu") && !is_extended("x.kubernetes.io/y"));
}
