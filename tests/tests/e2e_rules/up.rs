//! Messages from devices: in order, after any cut or kill.

use std::time::Duration;

use sampan_tests::can_run;
use sampan_tests::faults::Faults;
use sampan_tests::process::{self, signal};
use sampan_tests::wait::until;

use super::target::Target;
use super::{SOON, Site};

pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// D6 (ke#6615, ke#4995): messages that are published while the link is cut arrive afterwards, in order, once.
#[test]
fn d06_messages_wait_for_the_line() {
    if !can_run() {
        return;
    }
    let site = Site::start("rules-cut");
    let (target, slow) = (Target::start(), Target::start());
    slow.answer("503 Service Unavailable", "", "");
    site.lead_up("readings", "temp/+", &format!("http://{}/in", target.address));
    site.lead_up("stuck", "stuck", &format!("http://{}/in", slow.address));
    site.wait_subscribed("temp/+");
    site.wait_subscribed("stuck");

    // A target that reads nothing does not delay others.
    for number in 0..8 {
        site.broker.publish(&site.topic("stuck"), &number.to_string());
    }
    site.broker.publish(&site.topic("temp/a"), "0");
    target.wait(SOON, "the first message", |bodies| bodies == ["0"]);
    let first = target.requests().remove(0);
    assert_eq!(first.line, "POST /in HTTP/1.1");
    assert_eq!(first.header("content-type"), Some("application/json"));
    assert_eq!(first.header("x-sampan-node"), Some(site.node.name.as_str()));
    assert_eq!(first.header("x-sampan-topic"), Some(site.topic("temp/a").as_str()));

    site.line.set(Faults { refuse: true, ..Faults::default() });
    site.line.cut();
    for number in 1..40 {
        site.broker.publish(&site.topic("temp/a"), &number.to_string());
    }
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(target.bodies().len(), 1);
    site.line.set(Faults::default());
    target.wait(LONG, "all of them", |bodies| bodies.len() >= 40);
    assert_eq!(target.messages(), numbers(0..40));

    slow.answer("200 OK", "", "");
    slow.wait(LONG, "what was held up", |bodies| bodies.len() >= 8);
    assert_eq!(slow.messages(), numbers(0..8));

    // Messages that the target refuses are counted, and not retried.
    target.answer("422 Unprocessable Content", "", "");
    site.broker.publish(&site.topic("temp/a"), "bad");
    target.wait(SOON, "the bad one", |bodies| bodies.iter().any(|body| body == "bad"));
    target.answer("307 Temporary Redirect", &format!("location: http://{}/\r\n", slow.address), "");
    site.broker.publish(&site.topic("temp/a"), "elsewhere");
    until(Duration::from_secs(30), "the status of the rule", || {
        let status = site.kubectl().get("rule", "readings")?["status"].clone();
        let errors = status["errors"].to_string();
        // A message whose answer was lost in a cut is sent twice, with the same id.
        let told = status["successMessages"].as_u64() >= Some(40) && status["failMessages"] == 2;
        if told && errors.contains("422") && errors.contains("redirects") { Ok(()) } else { Err(status.to_string()) }
    });
    assert_eq!(target.bodies().iter().filter(|body| *body == "bad").count(), 1);

    // Rules are changed and deleted while the node is connected.
    target.answer("204 No Content", "", "");
    let other = Target::start();
    site.lead_up("readings", "temp/+", &format!("http://{}/other", other.address));
    std::thread::sleep(Duration::from_secs(1));
    site.broker.publish(&site.topic("temp/a"), "moved");
    other.wait(SOON, "a message at the other target", |bodies| bodies == ["moved"]);
    let _ = site.kubectl().ok(&["delete", "rule", "readings"]);
    std::thread::sleep(Duration::from_secs(1));
    site.broker.publish(&site.topic("temp/a"), "nobody's");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((other.messages().len(), target.messages().contains(&"nobody's".to_owned())), (1, false));
}

/// D6: no crash loses a message that is older than a second.
#[test]
fn d06_every_program_may_die_and_no_message_with_it() {
    if !can_run() {
        return;
    }
    let mut site = Site::start("rules-kill");
    let target = Target::start();
    site.lead_up("readings", "temp", &format!("http://{}/in", target.address));
    site.wait_subscribed("temp");
    let publish = |site: &Site, range: std::ops::Range<u32>| {
        for number in range {
            site.broker.publish(&site.topic("temp"), &number.to_string());
        }
        // Time for the message to be stored.
        std::thread::sleep(Duration::from_millis(2_500));
    };
    target.answer("503 Service Unavailable", "", "");
    publish(&site, 0..20);
    let helper = helper(&site).expect("the helper runs");
    signal(helper, "KILL");
    until(SOON, "another helper", || match self::helper(&site) {
        Some(other) if other != helper => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // Its subscription is in the broker's log again.
    std::thread::sleep(Duration::from_secs(3));
    publish(&site, 20..40);
    site.node.kill();
    site.node.start();
    site.node.wait_ready();
    publish(&site, 40..60);
    site.cluster.kill_bridge();
    publish(&site, 60..80);
    site.node.kill();
    site.node.start();
    // It is not ready without a cloud, but subscribes.
    std::thread::sleep(Duration::from_secs(4));
    publish(&site, 80..100);
    target.answer("200 OK", "", "");
    site.cluster.start_bridge();
    target.wait(LONG, "all of them", |bodies| bodies.len() >= 100);
    assert_eq!(target.messages(), numbers(0..100));
}

pub(crate) fn helper(site: &Site) -> Option<u32> {
    process::helpers(site.node.root(), "edge-devices", "devices.sock").first().copied()
}
