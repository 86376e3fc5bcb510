//! Messages that wait while the disk is full or fails, or while the helper hangs: no accepted message is lost, and the
//! node keeps running.

use std::time::{Duration, Instant};

use sampan_tests::can_run;
use sampan_tests::process::signal;
use sampan_tests::wait::{patient, until};
use serde_json::json;

use super::target::Target;
use super::up::{LONG, helper, numbers};
use super::{SOON, Site, rule};

/// Publishes, and waits until the messages are in the store.
fn publish(site: &Site, range: std::ops::Range<u32>) {
    for number in range {
        site.broker.publish(&site.topic("temp"), &number.to_string());
    }
    std::thread::sleep(Duration::from_millis(2_500));
}

/// A target that accepts nothing yet, and a rule that uses it before all others.
fn held_up(site: &Site) -> Target {
    let target = Target::start();
    target.answer("503 Service Unavailable", "", "");
    let from = json!({"topic": "temp", "node_name": site.node.name});
    let to = json!({"resource": format!("http://{}/in", target.address)});
    let mut first = rule("readings", ("my-bus", &from), ("my-rest", &to));
    first["metadata"]["annotations"] = json!({"sampan.dev/priority": "9"});
    site.kubectl().apply(&first.to_string());
    site.wait_subscribed("temp");
    target
}

fn high_water(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// D6: a client that publishes a lot on a full disk uses up no reserve of the node and no memory, and displaces no
/// waiting messages.
#[test]
fn d06_on_a_full_disk_messages_wait_and_the_node_goes_on() {
    if !can_run() {
        return;
    }
    let Some(site) = Site::start_on_disk("rules-full", 64) else { return };
    let (target, flooded) = (held_up(&site), Target::start());
    flooded.answer("503 Service Unavailable", "", "");
    site.lead_up("flood", "flood", &format!("http://{}/", flooded.address));
    site.wait_subscribed("flood");
    publish(&site, 0..20);

    let disk = site.disk.as_ref().expect("a disk");
    disk.fill();
    let (daemon, helper_before) = (site.node.daemon.as_ref().expect("it runs").pid(), helper(&site).expect("a helper"));
    let long = "x".repeat(60_000);
    let began = Instant::now();
    let waits = |site: &Site| site.node.log().contains("messages of devices wait for room on the disk");
    for round in 0.. {
        site.broker.publish(&site.topic("flood"), &long);
        if round > 100 && waits(&site) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "it takes {round} messages: {}", site.node.log());
    }
    for _ in 0..200 {
        site.broker.publish(&site.topic("flood"), &long);
    }
    publish(&site, 20..30);
    // Twice the retry interval.
    std::thread::sleep(Duration::from_secs(20));
    let log = site.node.log();
    assert!(!log.contains("beginning again"), "{log}");
    assert_eq!(site.node.daemon.as_ref().map(sampan_tests::process::Process::pid), Some(daemon));
    assert_eq!(helper(&site), Some(helper_before));
    let high = high_water(helper_before);
    assert!(high < 24 << 10, "{high} kB in the helper");
    let _ = site.node.edge_ok(&["status"]);
    // The node can still write its own data.
    let annotate = ["annotate", "node", &site.node.name, "sampan.test/full=yes"];
    let _ = site.kubectl().ok(&annotate);

    disk.free();
    target.answer("200 OK", "", "");
    target.wait(LONG, "all of them", |bodies| bodies.len() >= 30);
    assert_eq!(target.messages(), numbers(0..30));
}

/// D6: if the disk fails, messages wait in memory, and are written to the next disk.
#[test]
fn d06_on_a_disk_that_is_read_only_messages_go_on() {
    if !can_run() {
        return;
    }
    let Some(mut site) = Site::start_on_disk("rules-readonly", 64) else { return };
    let target = held_up(&site);
    publish(&site, 0..20);
    site.disk.as_ref().expect("a disk").abort();
    publish(&site, 20..40);
    until(LONG, "the node goes on in memory", || {
        let log = site.node.log();
        if log.contains("in memory until the disk takes it again") { Ok(()) } else { Err(log) }
    });
    publish(&site, 40..60);
    target.answer("200 OK", "", "");
    target.wait(LONG, "all of them", |bodies| bodies.len() >= 60);
    assert_eq!(target.messages(), numbers(0..60));

    target.answer("503 Service Unavailable", "", "");
    publish(&site, 60..80);
    site.disk.as_mut().expect("a disk").rescue();
    until(Duration::from_secs(90), "the store is on the disk again", || {
        let log = site.node.log();
        if log.contains("and the disk takes it again") { Ok(()) } else { Err(log) }
    });
    std::thread::sleep(Duration::from_secs(3));
    publish(&site, 80..100);
    site.node.kill();
    site.node.start();
    target.answer("200 OK", "", "");
    target.wait(LONG, "all of them", |bodies| bodies.len() >= 100);
    assert_eq!(target.messages(), numbers(0..100));
}

/// D6: a helper that hangs is replaced. Stored messages are sent meanwhile.
#[test]
fn d06_a_helper_that_stands_still_takes_nothing_with_it() {
    if !can_run() {
        return;
    }
    let site = Site::start("rules-hung");
    let target = held_up(&site);
    publish(&site, 0..40);
    let (daemon, hung) = (site.node.daemon.as_ref().expect("it runs").pid(), helper(&site).expect("a helper"));
    signal(hung, "STOP");
    target.answer("200 OK", "", "");
    target.wait(LONG, "what was in the store", |bodies| bodies.len() >= 40);
    let began = Instant::now();
    let _ = site.node.edge_ok(&["status"]);
    assert!(began.elapsed() < patient(SOON), "the daemon answers");
    // The daemon checks it after half a minute without a message.
    let replaced = until(Duration::from_secs(90), "another helper", || match helper(&site) {
        Some(other) if other != hung => Ok(other),
        other => Err(format!("{other:?}")),
    });
    assert!(!std::path::Path::new(&format!("/proc/{hung}")).exists(), "the one that hung is gone");
    assert_eq!(site.node.daemon.as_ref().map(sampan_tests::process::Process::pid), Some(daemon));
    std::thread::sleep(Duration::from_secs(3));
    publish(&site, 40..60);
    target.wait(LONG, "what came later", |bodies| bodies.len() >= 60);
    assert_eq!(target.messages(), numbers(0..60));
    assert_eq!(helper(&site), Some(replaced));
}
