//! D13: disabled devices cost nothing, and enabling them again finds the existing ones.

use std::path::Path;
use std::time::Duration;

use sampan_tests::process;
use sampan_tests::wait::until;
use sampan_tests::{Cluster, can_run};

use super::{Site, device, install, model};

/// Processes of the helper that serve this root.
pub(super) fn helpers(root: &Path) -> Vec<u32> {
    process::helpers(root, "edge-devices", "devices.sock")
}

#[test]
fn d13_off_is_off() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("devices-off");
    install(&cluster);
    let mut node = cluster.node("edge");
    cluster.kubectl.apply_all(&[model(), device("t1", &node.name, "ON")]);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(helpers(node.root()), [0_u32; 0]);
    assert!(!node.root().join("run/edge-runtime/devices.sock").exists());
    // Nothing of devices was sent over the link, so nothing is stored.
    let store = node.root().join("var/lib/edge-runtime/store.db");
    let held = |store: &Path| {
        let db = std::fs::read(store).unwrap_or_default();
        let wal = std::fs::read(store.with_extension("db-wal")).unwrap_or_default();
        [db, wal].concat().windows(11).any(|bytes| bytes == b"DeviceModel")
    };
    assert!(store.exists() && !held(&store));

    node.configure("device-twin: {}\n");
    node.kill();
    node.start();
    until(Duration::from_secs(10), "the helper", || match helpers(node.root()).len() {
        1 => Ok(()),
        other => Err(format!("{other} helpers")),
    });
    until(Duration::from_secs(10), "the device", || if held(&store) { Ok(()) } else { Err("nothing".to_owned()) });
    node.configure("");
    node.kill();
    node.start();
    until(Duration::from_secs(10), "no helper", || match helpers(node.root()).len() {
        0 => Ok(()),
        other => Err(format!("{other} helpers")),
    });
}

/// A node removes a device that was moved to another node.
#[test]
fn d03_a_device_moves() {
    if !can_run() {
        return;
    }
    let site = Site::start("devices-move");
    let kubectl = site.kubectl();
    let heard = site.broker.listen("$hw/events/#");
    kubectl.apply_all(&[model(), device("t1", &site.node.name, "ON")]);
    heard.next("t1/twin/update/delta");
    site.report("t1", "temp", "1");
    site.wait_reported("t1", "temp", "1");
    let _ = kubectl.ok(&["patch", "device", "t1", "--type", "merge", "-p", r#"{"spec":{"nodeName":"elsewhere"}}"#]);
    heard.next_that("/membership/updated", |text| text["removed_devices"].is_array());
    site.report("t1", "temp", "2");
    let refused = heard.next_that("t1/twin/update/result", |text| !text["code"].is_null());
    assert_eq!(refused["code"], 404);
}
