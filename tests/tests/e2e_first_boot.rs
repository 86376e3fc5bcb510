//! How a device becomes a node without a hand: a file on its boot partition, and a command that may be given twice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::process::{Process, binary};
use sampan_tests::{Cluster, EdgeNode, can_run, until};

/// A card like that of `cloud-bridge token create --file`, on the node's boot partition.
fn card(cluster: &Cluster, root: &Path, node: &str) -> PathBuf {
    let place = root.join("boot/firmware/edge-runtime.join");
    fs::create_dir_all(place.parent().expect("a folder")).expect("made");
    let mut command = Command::new(binary("cloud-bridge"));
    command.args(["token", "create", node, "--state"]).arg(cluster.folder().join("bridge")).arg("--file").arg(&place);
    let output = command.output().expect("cloud-bridge starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("edge-runtime.join"), "{output:?}");
    assert!(!said.contains("sampan1."), "the token is in the file alone: {said}");
    assert_eq!(fs::metadata(&place).expect("there").permissions().mode() & 0o777, 0o600);
    place
}

fn first_boot(cluster: &Cluster, root: &Path) -> Process {
    let mut command = Command::new(binary("edge-runtime"));
    command.arg("first-boot").arg("--root").arg(root);
    Process::start(&mut command, &cluster.folder().join("first-boot.log"))
}

#[test]
fn a_file_on_the_boot_partition_joins_once_as_soon_as_there_is_a_bridge() {
    if !can_run() {
        return;
    }
    // Its bridge is stopped, which on an API server of others is another thing.
    if std::env::var_os("TEST_KUBECONFIG").is_some() {
        return;
    }
    let mut cluster = Cluster::start("first-boot");
    let name = format!("card-{}", cluster.kubectl.namespace);
    let mut node = EdgeNode::bare(&cluster, &name);
    let root = cluster.folder().join(&name);
    let place = card(&cluster, &root, &name);
    let mut text = fs::read_to_string(&place).expect("text");
    text.push_str("label: sampan.dev/site=hall-3\r\n");
    fs::write(&place, text).expect("written");

    // No network yet, as far as the board can tell: it tries, and the file stays.
    cluster.kill_bridge();
    let mut boots = first_boot(&cluster, &root);
    until(Duration::from_secs(10), "it says that it tries again", || {
        let log = boots.log();
        if log.contains("trying again") { Ok(()) } else { Err(log) }
    });
    assert!(boots.is_running() && place.exists());
    cluster.start_bridge();
    until(Duration::from_secs(60), "it has joined", || if boots.is_running() { Err(boots.log()) } else { Ok(()) });
    assert!(boots.log().contains("joined cluster"), "{}", boots.log());
    assert!(!boots.log().contains("sampan1."), "no token in the log");
    assert!(!place.exists(), "the file is used up");
    node.start();
    node.wait_ready();
    let labels = cluster.kubectl.get("node", &name).expect("the node")["metadata"]["labels"].clone();
    assert_eq!(labels["sampan.dev/site"], "hall-3", "{labels}");

    // The same card in another board: the token is used up permanently.
    let root = cluster.folder().join("another");
    let place = root.join("boot/edge-runtime.join");
    fs::create_dir_all(place.parent().expect("a folder")).expect("made");
    let used = cluster.token("another");
    let other = EdgeNode::bare(&cluster, "another");
    let url = format!("https://{}", cluster.listen);
    let joined = other.edge_ok(&["join", &used]);
    assert!(joined.contains("as node another"), "the token names bridge and node: {joined}");
    fs::remove_dir_all(root.join("var")).expect("forgotten");
    fs::write(&place, format!("bridge: {url}\nnode: another\ntoken: {used}\n")).expect("written");
    let refused = other.edge(&["first-boot"]).expect_err("refused");
    assert!(refused.contains("refused (401)"), "{refused}");
    assert!(!place.exists(), "it is not tried again at the next boot");
    let why = fs::read_to_string(place.with_file_name("edge-runtime.join.failed")).expect("the reason");
    assert!(why.contains("refused (401)") && why.contains(&format!("token: {used}")), "{why}");

    // What its maker can mend stays, with the reason beside it.
    fs::write(&place, "bridge: https://b:1\nnode another\n").expect("written");
    let wrong = other.edge(&["first-boot"]).expect_err("wrong");
    assert!(wrong.contains("line 2: want KEY: VALUE"), "{wrong}");
    assert!(place.exists());
}
