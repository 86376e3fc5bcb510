//! A link on which nothing passes any more, without an error: both sides detect it in time, and not too early.

use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use sampan_tests::manifest::{pod, shell};
use sampan_tests::wait::patient;
use sampan_tests::{Cluster, EdgeNode, FaultProxy, Faults, Uplink, can_run, until};
use serde_json::json;

use super::{Background, connections, ready, reconnected};

/// Two heartbeats, and some time for a busy host to write and read the result.
const FOUND: Duration = Duration::from_secs(30 + 5);

fn pids_of(words: &[&str]) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("procfs").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line: Vec<&str> = line.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
        line.starts_with(words)
    })
    .collect()
}

/// One node's packets are dropped permanently (G13, G16, and the end of streams), another's for 20 s (G16).
#[test]
fn g13_g16_silence_is_noticed_in_time_and_not_sooner() {
    if !can_run() {
        return;
    }
    let uplink = Rc::new(Uplink::new());
    let cluster = Cluster::start_at("silence", uplink.bridge_ip(), &[]);
    let kubectl = &cluster.kubectl;
    let proxy = FaultProxy::start(uplink.bridge_ip(), cluster.listen);
    let name = format!("lost-{}", kubectl.namespace);
    let direct = format!("https://{}", cluster.listen);
    let mut lost = EdgeNode::prepare_behind(&cluster, &name, &direct, Some(Rc::clone(&uplink)));
    lost.start();
    lost.wait_ready();
    let brief = super::node_behind(&cluster, "brief", &proxy.url());
    kubectl.apply_all(&[pod("streams", &name, json!([shell("c", "while sleep 1; do echo x; done")]))]);
    kubectl.wait_ready("streams");
    let mut logs = Background::start(kubectl, &["logs", "-f", "streams"]);
    let marker = format!("{}", 100_000 + std::process::id());
    let mut exec = Background::start(kubectl, &["exec", "streams", "--", "sleep", &marker]);
    until(Duration::from_secs(20), "the command runs", || {
        if pids_of(&["sleep", &marker]).is_empty() { Err("no process") } else { Ok(()) }.map_err(str::to_owned)
    });
    assert!(!logs.has_ended() && !exec.has_ended());
    let connected = (connections(&cluster, &lost), connections(&cluster, &brief));

    uplink.lose(100, 100);
    proxy.set(Faults::silence());
    let cut = Instant::now();
    let cut_at = SystemTime::now();
    let mut brief_again = None;
    let (mut edge_knew, mut bridge_knew, mut streams_ended, mut command_gone) = (None, None, None, None);
    let ended = format!("node {name}: connection");
    while cut.elapsed() < FOUND {
        let now = cut.elapsed();
        if now >= Duration::from_secs(20) && brief_again.is_none() {
            proxy.set(Faults::default());
            brief_again = Some(now);
        }
        if edge_knew.is_none() && lost.log().contains("nothing heard from the peer") {
            edge_knew = Some(now);
        }
        if bridge_knew.is_none()
            && cluster.log().lines().any(|line| line.contains(&ended) && line.contains("nothing heard"))
        {
            bridge_knew = Some(now);
        }
        if streams_ended.is_none() && logs.has_ended() && exec.has_ended() {
            streams_ended = Some(now);
        }
        if command_gone.is_none() && pids_of(&["sleep", &marker]).is_empty() {
            command_gone = Some(now);
        }
        assert_eq!(ready(kubectl, &brief.name).as_deref(), Ok("True"), "{now:?} after a cut of 20 s");
        std::thread::sleep(Duration::from_millis(200));
    }
    let figures = format!(
        "edge knew {edge_knew:?}, bridge knew {bridge_knew:?}, streams ended {streams_ended:?}, command gone {command_gone:?}"
    );
    crate::tell(&figures);
    let all = [edge_knew, bridge_knew, streams_ended, command_gone];
    assert!(all.iter().all(Option::is_some), "within {FOUND:?}: {figures}");

    // A new request is answered at once, with the time since which the node is offline.
    let asked = Instant::now();
    let error = kubectl.run(&["logs", "streams"]).expect_err("the node is not there");
    assert!(asked.elapsed() < patient(Duration::from_secs(5)), "{:?}", asked.elapsed());
    if std::env::var_os("TEST_KUBECONFIG").is_some() {
        // A kube-apiserver has one message for every 503; the bridge's is among the causes, which kubectl shows at -v=8
        // (apimachinery pkg/api/errors `NewGenericServerResponse`).
        assert!(error.contains("ServiceUnavailable"), "{error}");
    } else {
        let seen = error.split("last seen ").nth(1).and_then(|rest| rest.get(..20));
        let seen = seconds(seen.unwrap_or_else(|| panic!("no time in: {error}")));
        assert!(seen <= cut_at + Duration::from_secs(1), "what was last seen was before the cut: {error}");
    }

    // NotReady follows within a minute of the cut, and the Lease was not renewed after it.
    let left = Duration::from_secs(60 + 2).saturating_sub(cut.elapsed());
    until(left, "the lost node is NotReady", || match ready(kubectl, &name)?.as_str() {
        "True" => Err("still Ready".to_owned()),
        _ => Ok(()),
    });
    crate::tell(&format!("NotReady {:?} after the cut", cut.elapsed()));
    assert!(cut.elapsed() >= Duration::from_secs(30), "{:?}", cut.elapsed());
    let mut leases = kubectl.clone();
    leases.namespace = "kube-node-lease".to_owned();
    let lease = leases.get("lease", &name).expect("a lease");
    let renewed = lease["spec"]["renewTime"].as_str().expect("a time");
    assert!(seconds(renewed) <= cut_at + Duration::from_secs(1), "{renewed}");
    assert_eq!(ready(kubectl, &brief.name).as_deref(), Ok("True"), "a cut of 20 s was no reason");

    uplink.lose(0, 0);
    let back = reconnected(&cluster, &lost, connected.0, Duration::from_secs(45));
    crate::tell(&format!("back {back:?} after packets passed again"));
    until(Duration::from_secs(10), "the node is Ready again", || match ready(kubectl, &name)?.as_str() {
        "True" => Ok(()),
        other => Err(other.to_owned()),
    });
    let pod = kubectl.wait_ready("streams");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
}

/// Whole seconds of an RFC 3339 time in UTC.
fn seconds(text: &str) -> SystemTime {
    let part = |from: usize, to: usize| text.get(from..to).and_then(|t| t.parse::<u64>().ok()).unwrap_or_default();
    let (year, month, day) = (part(0, 4), part(5, 7), part(8, 10));
    // Days from 1970 (H. Hinnant, chrono-Compatible Low-Level Date Algorithms).
    let shifted = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let days = 365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let of_day = part(11, 13) * 3600 + part(14, 16) * 60 + part(17, 19);
    SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400 + of_day)
}
