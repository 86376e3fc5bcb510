//! Boards of one card image become nodes: E1 to E3 of the list of guarantees, with real binaries and kubectl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::process::{Process, binary};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::Value;

/// A board asks every 30 to 45 s while its request is new.
const ASKED: Duration = Duration::from_secs(75);

/// A board with this serial number whose boot partition has the file of the card image.
struct Board {
    node: EdgeNode,
    place: PathBuf,
}

impl Board {
    fn new(cluster: &Cluster, name: &str, serial: &str, image: &Path) -> Self {
        let node = EdgeNode::bare(cluster, name);
        let firmware = node.root().join("proc/device-tree");
        fs::create_dir_all(&firmware).expect("made");
        fs::write(firmware.join("serial-number"), format!("{serial}\0")).expect("written");
        let place = node.root().join("boot/firmware/edge-runtime.join");
        fs::create_dir_all(place.parent().expect("a folder")).expect("made");
        fs::copy(image, &place).expect("copied");
        Self { node, place }
    }

    fn boot(&self) -> Process {
        let mut command = Command::new(binary("edge-runtime"));
        command.arg("first-boot").arg("--root").arg(self.node.root());
        Process::start(&mut command, &self.node.root().join("first-boot.log"))
    }

    /// Why it does not try again.
    fn failed(&self) -> String {
        fs::read_to_string(self.place.with_file_name("edge-runtime.join.failed")).unwrap_or_default()
    }
}

/// Writes the file of a card image, with a claim token of these terms.
fn image(cluster: &Cluster, terms: &[&str]) -> PathBuf {
    let image = cluster.folder().join("edge-runtime.join");
    let (file, name) = (image.display().to_string(), format!("{}-{{serial}}", cluster.kubectl.namespace));
    let words = ["token", "claim", "--name", &name, "--file", &file];
    let said = cluster.bridge_verb(&[&words[..], terms].concat()).expect("a claim token");
    assert!(said.contains("edge-runtime.join") && !said.contains("sampan2."), "the token is in the file alone: {said}");
    image
}

/// Waits for the request of the board with this name; returns the name of its CertificateSigningRequest.
fn request(cluster: &Cluster, node: &str) -> String {
    until(Duration::from_secs(30), &format!("a request of {node}"), || {
        let text = cluster.kubectl.run(&["get", "csr", "-o", "json"])?;
        let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let mut all = list["items"].as_array().into_iter().flatten();
        let found = all.find(|one| one["metadata"]["annotations"]["sampan.dev/node"] == node);
        found.and_then(|one| one["metadata"]["name"].as_str()).map(str::to_owned).ok_or(text)
    })
}

fn ended(process: &mut Process, within: Duration) {
    until(within, "the first boot ends", || if process.is_running() { Err(process.log()) } else { Ok(()) });
}

#[test]
fn e2_e3_boards_of_one_image_wait_for_a_person() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("enrol");
    let named = |serial: &str| format!("{}-{serial}", cluster.kubectl.namespace);
    let image = image(&cluster, &["--uses", "3", "--label", "sampan.dev/site=hall-3"]);
    let board = |name: &str, serial: &str| Board::new(&cluster, &named(name), serial, &image);
    let (mut approved, denied, late) = (board("1000abcd", "1000ABCD"), board("2000", "2000"), board("3000", "3000"));
    let mut boots = [&approved, &denied, &late].map(Board::boot);
    let [first, second, third] = ["1000abcd", "2000", "3000"].map(|serial| request(&cluster, &named(serial)));
    assert!(first != second && second != third);

    // The image in one board too many.
    let stolen = board("4000", "4000");
    let refused = stolen.node.edge(&["first-boot"]).expect_err("it is used up");
    assert!(refused.contains("refused (403)") && refused.contains("used up"), "{refused}");

    let _ = cluster.kubectl.ok(&["certificate", "approve", &first]);
    let _ = cluster.kubectl.ok(&["certificate", "deny", &second]);
    ended(&mut boots[0], ASKED);
    assert!(boots[0].log().contains("joined cluster"), "{}", boots[0].log());
    assert!(!approved.place.exists(), "the file is used up");
    let row = cluster.kubectl.ok(&["get", "csr", &first]);
    assert!(row.contains("Approved,Issued") && row.contains("sampan.dev/node"), "{row}");
    approved.node.start();
    let object = approved.node.wait_ready();
    assert_eq!(object["metadata"]["labels"]["sampan.dev/site"], "hall-3", "{object}");

    ended(&mut boots[1], ASKED);
    assert!(denied.failed().contains("was denied"), "{}", denied.failed());

    let claim = cluster.bridge_verb(&["token", "list", "-o", "name"]).expect("listed");
    let claim = claim.lines().find(|name| name.starts_with("claim-")).expect("a claim token").to_owned();
    let deleted = cluster.bridge_verb(&["token", "delete", &claim]).expect("deleted");
    assert!(deleted.contains(&named("{serial}")), "{deleted}");
    ended(&mut boots[2], ASKED);
    assert!(late.failed().contains("refused (401)"), "{}", late.failed());
    assert!(cluster.kubectl.get("node", &late.node.name).is_err(), "nothing was approved");
    for log in boots.iter().map(Process::log).chain([cluster.log()]) {
        assert!(!log.contains("sampan2."), "no token in the log: {log}");
    }
}

#[test]
fn e1_automatic_approval_gives_no_name_twice() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("enrol-auto");
    let image = image(&cluster, &["--uses", "9", "--approve", "auto"]);
    let named = |serial: &str| format!("{}-{serial}", cluster.kubectl.namespace);
    // They stay: a board that goes takes its Node with it.
    let boards = ["7-7", "8"].map(|serial| Board::new(&cluster, &named(serial), serial, &image));
    for Board { node, .. } in &boards {
        node.edge_ok(&["first-boot"]);
        let object = cluster.kubectl.get("node", &node.name).expect("a node without a hand");
        assert!(object["metadata"]["annotations"]["sampan.dev/hardware"].is_string(), "{object}");
    }

    // Another serial number that makes the same name.
    let other = Board::new(&cluster, "other", "7.7", &image);
    let mut boot = other.boot();
    until(Duration::from_secs(20), "it is told", || {
        let log = boot.log();
        if log.contains("NameTaken") { Ok(()) } else { Err(log) }
    });
    let _ = cluster.kubectl.ok(&["delete", "node", &named("7-7")]);
    ended(&mut boot, ASKED);
    assert!(boot.log().contains(&format!("as node {}", named("7-7"))), "{}", boot.log());
    assert!(!other.place.exists() && other.failed().is_empty());
}
