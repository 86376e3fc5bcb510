//! Programs are killed while clients count answers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sampan_tests::process::signal;
use sampan_tests::wait::patient;
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use super::traffic::{Client, leads_somewhere, name_server, network};
use super::{address, answered_by, client, server, service};

/// How long programs are killed.
const TROUBLE: Duration = Duration::from_secs(40);
/// Time of failures after the end of a DNS helper: the daemon, which waits after each end, has to start another one.
const GAP: Duration = Duration::from_secs(2);

/// Small numbers, so that each wait differs.
fn chance(below: u64) -> u64 {
    let mut byte = [0; 8];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").expect("chance"), &mut byte).expect("chance");
    u64::from_ne_bytes(byte) % below
}

#[test]
fn s05_s14_kills_fail_no_request_and_of_names_only_those_under_way() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("services-kill");
    let mut node = cluster.node("edge");
    let kubectl = cluster.kubectl.clone();
    let on = node.name.clone();
    // A busy machine that starts programs must not make it unready.
    let calm = |name: &str| {
        let mut pod = server(name, &on, "web");
        for (field, value) in [("timeoutSeconds", 30), ("failureThreshold", 10)] {
            pod["spec"]["containers"][0]["readinessProbe"][field] = json!(value);
        }
        pod
    };
    kubectl.apply_all(&[service("web", "web", &json!({})), client("client", &on), calm("a"), calm("b")]);
    ["client", "a", "b"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let ip = address(&kubectl, "web");
    answered_by(&node, "client", &format!("http://{ip}:80/"), &["a", "b"]);
    let at: SocketAddr = format!("{ip}:80").parse().expect("an address");
    let (asked, name) = (name_server(&node, "client"), format!("web.{}.svc.cluster.local", kubectl.namespace));
    until(Duration::from_secs(15), "the name is known", || {
        node.edge(&["exec", "client", "--", "nslookup", &name]).map(drop)
    });
    let inside = network(&kubectl, "client");
    let from_pod = Client::of_http(Some(&inside), at);
    let from_host = Client::of_http(None, at);
    let names = Client::start(Some(&inside), move || leads_somewhere(asked, &name));

    let (begin, mut helpers, mut kills) = (Instant::now(), Vec::new(), [0; 3]);
    while begin.elapsed() < TROUBLE {
        std::thread::sleep(Duration::from_millis(chance(1_500)));
        // The wait for another helper doubles with each end; a new daemon begins again.
        let victim = if kills[2] > kills[1] + 3 { 1 } else { usize::try_from(chance(3)).expect("small") };
        kills[victim] += 1;
        match victim {
            0 => {
                cluster.kill_bridge();
                std::thread::sleep(Duration::from_millis(chance(500)));
                cluster.start_bridge();
            }
            1 => {
                node.kill();
                std::thread::sleep(Duration::from_millis(chance(500)));
                node.start();
                until(Duration::from_secs(20), "the daemon knows its pods", || node.edge(&["ps"]));
            }
            _ => {
                let helper =
                    until(Duration::from_secs(20), "a helper runs", || node.dns_pid().ok_or_else(|| node.log()));
                helpers.push(Instant::now());
                signal(helper, "KILL");
                until(Duration::from_secs(20), "another helper runs", || {
                    node.dns_pid().filter(|another| *another != helper).ok_or_else(|| node.log())
                });
            }
        }
    }
    let seen = [from_pod.stop(), from_host.stop()];
    let names = names.stop();
    for requests in &seen {
        assert!(requests.answers > 100, "{kills:?}: {requests:?}");
        assert!(requests.failures.is_empty(), "{kills:?}: {requests:?}");
    }
    assert!(names.answers > 100, "{kills:?}: {names:?}");
    for (at, why) in &names.failures {
        assert!(!why.starts_with("wrong"), "{why}");
        let after = helpers.iter().filter(|killed| **killed <= *at + Duration::from_millis(100)).max();
        let near = after.is_some_and(|killed| at.saturating_duration_since(*killed) < patient(GAP));
        assert!(near, "{kills:?}: a question failed without a helper's end: {why}; {names:?}");
    }
    assert!(names.failures.len() <= 50 * helpers.len(), "{kills:?}: {names:?}");
}

/// The test's own clients are slow; `./scripts/bench services` measures the exact time.
#[test]
fn s02_what_is_not_ready_gets_no_connection_though_the_cloud_is_away() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("services-unready");
    let node = cluster.node("edge");
    let kubectl = cluster.kubectl.clone();
    let on = node.name.clone();
    kubectl.apply_all(&[
        service("web", "web", &json!({})),
        client("client", &on),
        server("a", &on, "web"),
        server("b", &on, "web"),
    ]);
    ["client", "a", "b"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let ip = address(&kubectl, "web");
    answered_by(&node, "client", &format!("http://{ip}:80/"), &["a", "b"]);
    let inside = network(&kubectl, "client");
    cluster.kill_bridge();
    let at: SocketAddr = format!("{ip}:80").parse().expect("an address");
    node.edge_ok(&["exec", "b", "--", "rm", "/tmp/ready"]);
    // A second until the probe starts, its run, and the rule.
    let (begin, limit) = (Instant::now(), patient(Duration::from_secs(3)));
    let client = Client::start(Some(&inside), move || match sampan_tests::get(at)?.trim() {
        "a" => Ok(()),
        other => Err(other.to_owned()),
    });
    std::thread::sleep(limit + Duration::from_secs(2));
    let seen = client.stop();
    let late = seen.failures.iter().find(|(at, _)| at.duration_since(begin) > limit);
    assert!(late.is_none() && seen.answers > 50, "{seen:?}");
}
