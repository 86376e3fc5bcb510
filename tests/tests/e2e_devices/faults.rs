//! Killed programs, a broker that stops and starts, a link that is cut.

use std::time::{Duration, Instant};

use sampan_tests::can_run;
use sampan_tests::process::signal;
use sampan_tests::wait::{patient, until};
use serde_json::json;

use super::{Site, device, model};

/// D2, D4, D5, D8: after any crash the newest value arrives, and nothing older after it.
#[test]
fn d05_every_program_may_die() {
    if !can_run() {
        return;
    }
    let mut site = Site::start("devices-kill");
    let node = site.node.name.clone();
    let heard = site.broker.listen("$hw/events/#");
    site.kubectl().apply_all(&[model(), device("t1", &node, "ON")]);
    // The node has the desired value.
    heard.next_that("t1/twin/update/delta", |text| text["delta"]["led"] == "ON");
    site.report("t1", "temp", "1");
    site.wait_reported("t1", "temp", "1");

    // Kill the helper.
    let pid = helper(&site).expect("the helper runs");
    signal(pid, "KILL");
    until(Duration::from_secs(10), "another helper", || match helper(&site) {
        Some(other) if other != pid => Ok(()),
        other => Err(format!("{other:?}")),
    });
    heard.next_that("t1/twin/update/delta", |text| text["delta"]["led"] == "ON");
    site.report("t1", "temp", "2");
    site.wait_reported("t1", "temp", "2");

    // Kill the daemon: the helper keeps running, and its broker notices nothing.
    let pid = helper(&site).expect("the helper runs");
    site.node.kill();
    site.report("t1", "temp", "3");
    site.node.start();
    site.wait_reported("t1", "temp", "3");
    assert_eq!(helper(&site), Some(pid), "it was taken over");

    // Kill the bridge, and with it the API.
    site.cluster.kill_bridge();
    site.report("t1", "temp", "4");
    site.report("t1", "temp", "5");
    std::thread::sleep(Duration::from_secs(2));
    site.cluster.start_bridge();
    until(Duration::from_secs(60), "the newest value", || {
        let status = site.kubectl().get("devicestatus", "t1")?;
        let value = super::twin(&status, "temp")["reported"]["value"].clone();
        if value == "5" { Ok(()) } else { Err(value.to_string()) }
    });

    // Stop the broker: desired values are sent again after a reconnect.
    site.broker.stop();
    let patch = json!({"spec": {"properties": [{"name": "temp"}, {"name": "led", "desired": {"value": "BLINK"}}]}});
    let _ = site.kubectl().ok(&["patch", "device", "t1", "--type", "merge", "-p", &patch.to_string()]);
    std::thread::sleep(Duration::from_secs(1));
    // The subscriber must connect before the helper does: the helper sends desired values when it connects.
    let pid = helper(&site).expect("the helper runs");
    signal(pid, "STOP");
    site.broker.begin();
    let heard = site.broker.listen("$hw/events/#");
    signal(pid, "CONT");
    let began = Instant::now();
    heard.next_that("t1/twin/update/delta", |text| text["delta"]["led"] == "BLINK");
    assert!(began.elapsed() < patient(Duration::from_secs(12)), "{:?}", began.elapsed());
    site.report("t1", "temp", "6");
    site.wait_reported("t1", "temp", "6");
}

fn helper(site: &Site) -> Option<u32> {
    super::off::helpers(site.node.root()).first().copied()
}
