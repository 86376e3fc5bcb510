//! The whole state of the node is on a card that fails: store, images, layers, volumes and logs.

use std::time::Duration;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::process::signal;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::json;

use crate::disk::Disk;
use crate::lines::{log_folder, losses, printing, text};
use crate::{endure, processes, tell, wait_healthy};

#[test]
fn a_card_that_turns_read_only_ends_no_pod() {
    goes_bad("readonly", Disk::mount, Disk::abort);
}

#[test]
fn a_card_that_fails_ends_no_pod() {
    goes_bad("ioerror", Disk::sick, Disk::fail);
}

type Make = fn(&std::path::Path, &std::path::Path, u64) -> Option<Disk>;

fn goes_bad(test: &str, make: Make, spoil: fn(&Disk)) {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start(test);
    let name = format!("edge-{}", cluster.kubectl.namespace);
    let Some(mut disk) = make(cluster.folder(), &cluster.folder().join(&name).join("var"), 128) else { return };
    let mut node = EdgeNode::prepare(&cluster, &name);
    node.start();
    node.wait_ready();
    let _away = disk.away_on_failure();
    let kubectl = &cluster.kubectl;
    let idle = |name: &str| pod(name, &node.name, json!([shell("c", "exec sleep 1000")]));
    kubectl.apply_all(&[printing("loud", &name, &["c", "d"]), idle("quiet"), idle("ends"), idle("goes")]);
    let loud = kubectl.wait_ready("loud");
    let [quiet, ends, goes] = ["quiet", "ends", "goes"].map(|name| kubectl.wait_ready(name));
    let before = [processes(&node, &loud), processes(&node, &quiet)];
    assert_eq!(before.each_ref().map(std::collections::BTreeMap::len), [2, 1]);

    spoil(&disk);
    tell(&format!("{test}: {}", wait_healthy(kubectl, &node, "False")));
    tell(&format!("{test}: {}", kubectl.wait_event(&name, "StoreInMemory")));
    // A deleted pod is stopped, an ended container cannot restart, a new pod waits: each has an event.
    let one = |pod| processes(&node, pod).into_values().next().expect("it runs").0;
    let (ending, going) = (one(&ends), one(&goes));
    signal(ending, "KILL");
    let _ = kubectl.ok(&["delete", "pod", "goes", "--wait=false"]);
    kubectl.apply_all(&[idle("comes")]);
    endure(&node, test);
    until(Duration::from_secs(30), "what is deleted has stopped", || {
        if std::path::Path::new(&format!("/proc/{going}")).exists() { Err(node.log()) } else { Ok(()) }
    });
    let waits = kubectl.wait_pod("ends", 30, "it waits", |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] != json!(null)
    });
    tell(&format!("{test}: {}", waits["status"]["containerStatuses"][0]["state"]["waiting"]));
    let comes = kubectl.get("pod", "comes").expect("a pod");
    tell(&format!("{test}: a new pod is {}", comes["status"]["phase"]));
    assert_eq!(comes["status"]["phase"], "Pending");
    let tries = node.log().matches("cannot be removed yet").count();
    tell(&format!("{test}: {tries} tries to remove what has ended"));
    assert!(tries <= 16, "without a pause that grows");
    for (pod, before) in [&loud, &quiet].into_iter().zip(&before) {
        assert_eq!(&processes(&node, pod), before, "they run on");
    }

    disk.rescue();
    until(Duration::from_secs(90), "the store is on the disk again", || {
        let log = node.log();
        if log.contains("and the disk takes it again") { Ok(()) } else { Err(log) }
    });
    wait_healthy(kubectl, &node, "True");
    for container in ["c", "d"] {
        let folder = log_folder(&node, kubectl, &loud, container);
        let told = until(Duration::from_secs(20), "the log says what was lost", || {
            let told = losses(&text(&folder)?);
            if told.is_empty() { Err("nothing yet".to_owned()) } else { Ok(told) }
        });
        tell(&format!("{test}: loud/{container} lost {told:?}"));
        assert_eq!(told.len(), 1, "told once: {told:?}");
        let _ = kubectl.ok(&["logs", "loud", "-c", container, "--tail=3"]);
    }
    kubectl.wait_gone("pod", "goes", 60);
    kubectl.wait_pod("ends", 60, "it has started again", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["ready"] == true && status["restartCount"].as_u64().is_some_and(|count| count > 0)
    });
    kubectl.wait_pod("comes", 60, "it has started", sampan_tests::kubectl::is_ready);
    for (pod, before) in [&loud, &quiet].into_iter().zip(&before) {
        assert_eq!(&processes(&node, pod), before, "nothing was started again");
        let now = kubectl.wait_ready(pod["metadata"]["name"].as_str().expect("a name"));
        assert_eq!(now["status"]["containerStatuses"][0]["restartCount"], 0);
    }
    // The node still knows it after a restart.
    node.kill();
    node.start();
    kubectl.wait_ready("comes");
    assert_eq!(processes(&node, &loud), before[0]);
}
