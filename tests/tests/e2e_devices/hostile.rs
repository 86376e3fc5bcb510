//! A hostile mapper in a container beside an honest one: it affects no other (D11, D12).

use std::time::{Duration, Instant};

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::wait::{patient, until};
use sampan_tests::{Cluster, EdgeNode, can_run};
use serde_json::{Value, json};

use super::mapper::{Mapper, SOURCES};
use super::{SOON, device, install, model, twin};

/// Duration of the attack, in seconds.
const TIME: u64 = 15;
/// Maximum memory of the helper, as it is built for tests.
const MEMORY_KB: u64 = 48 << 10;
/// Maximum calls to a mapper that fails each one: once a second while it is young, plus those under way.
const CALLS: u64 = 3 * TIME;

/// Peak memory of the process, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number")
}

#[test]
fn a_hostile_mapper_in_a_container_harms_itself() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("devices-hostile");
    install(&cluster);
    let folder = cluster.folder().join("kubeedge");
    let mut node = EdgeNode::prepare(&cluster, "edge");
    node.configure(&format!("device-twin: {{dmi: {{folder: '{}'}}}}\n", folder.display()));
    node.start();
    node.wait_ready();
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[model(), device("t1", &node.name, "ON")]);
    let mut evil = device("e1", &node.name, "ON");
    evil["spec"]["protocol"] = json!({"protocolName": "evil"});
    kubectl.apply(&evil.to_string());
    let mut mapper = Mapper::early(&folder);
    if mapper.serves() == 0 {
        assert_eq!((mapper.called().0, mapper.called().0), ("CreateDeviceModel".into(), "RegisterDevice".into()));
    }
    let helper = || super::off::helpers(node.root());
    let before = helper();

    // The image has no Python, but the host does.
    let script = format!("exec chroot /host python3 -B {SOURCES}/dmi_hostile.py {} evil evil {TIME}", folder.display());
    let container = with(shell("c", &script), &json!({"volumeMounts": [{"name": "host", "mountPath": "/host"}]}));
    let mut hostile = pod("evil", &node.name, json!([container]));
    hostile["spec"]["volumes"] = json!([{"name": "host", "hostPath": {"path": "/"}}]);
    hostile["spec"]["restartPolicy"] = json!("Never");
    kubectl.apply(&hostile.to_string());
    kubectl.wait_log("evil", "begun");

    // Tens of thousands of connections in a second fill the queue of the socket. gRPC then retries after a second, and
    // so does a mapper of the framework. Usually it is accepted within that time.
    let start = Instant::now();
    let (mut said, mut taken) = (0, 0);
    while start.elapsed() < Duration::from_secs(TIME) {
        said += 1;
        let twin = json!({"property": "temp", "observed": "", "reported": said.to_string()});
        match mapper.says(&kubectl.namespace, &twin).as_str() {
            "OK" => taken += 1,
            late => assert!(late.starts_with("DEADLINE_EXCEEDED"), "{late}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(taken > 10 && taken > said / 2, "{taken} of {said} reports");
    // The next pod and its mapper.
    kubectl.wait_phase("evil", "Succeeded");
    let newest = (said + 1).to_string();
    mapper.reports(&kubectl.namespace, "temp", &newest);
    until(patient(SOON), "the newest value", || {
        let status = kubectl.get("devicestatus", "t1")?;
        let value = twin(&status, "temp")["reported"]["value"].clone();
        if value == *newest { Ok(()) } else { Err(value.to_string()) }
    });
    assert_eq!(helper(), before, "it lives");
    assert!(peak(before[0]) < MEMORY_KB, "{} KiB", peak(before[0]));

    let log = kubectl.wait_log("evil", "}");
    let counts: Value = log.lines().find_map(|line| serde_json::from_str(line).ok()).expect("what it has done");
    for what in ["frames", "resets", "halves", "MapperRegister", "ReportDeviceStatus", "called"] {
        assert!(counts[what].as_u64() > Some(0), "{what}: {counts}");
    }
    assert!(counts["called"].as_u64() < Some(CALLS), "{counts}");
    // Calls go only to sockets in the folder, and a socket without a registered mapper is not listed.
    let listed = node.edge_ok(&["devices", "mappers"]);
    let uid = kubectl.get("pod", "evil").expect("it is there")["metadata"]["uid"].clone();
    let sockets: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(sockets, ["m.sock", "evil.sock"], "{listed}");
    assert!(listed.contains(uid.as_str().expect("a uid")), "{listed}");
    for status in ["kube-system", &kubectl.namespace]
        .map(|namespace| kubectl.run(&["get", "devicestatus", "-n", namespace, "-o", "json"]))
    {
        assert!(!status.expect("a list").contains("\"666\""), "a stranger's value");
    }
}
