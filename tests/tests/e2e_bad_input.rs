//! Invalid input at every interface: each gives an error that names the object, and nothing else is affected.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::node::BUSYBOX;
use sampan_tests::process::binary;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::json;

/// Renames the changed configuration `$c` to its digest, and packs everything as another image.
const RENAME: &str = "id=$(sha256sum $c | cut -d' ' -f1); mv $c $id.json; \
    sed -i \"s/\\\"Config\\\":\\\"[^\\\"]*/\\\"Config\\\":\\\"$id.json/; s/busybox:latest/other:latest/\" manifest.json; \
    tar -cf ../bad.tar .";

#[test]
fn wrong_manifests_archives_and_verbs_are_named() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("bad");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[pod("good", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    kubectl.wait_ready("good");
    let before = node.container_pids();

    let mut wrong = pod("wrong", &node.name, json!([shell("c", "true")]));
    wrong["spec"]["containers"][0]["imagePullPolicy"] = json!("Sometimes");
    wrong["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "none", "mountPath": "/x"}]);
    let error = kubectl.try_apply(&wrong.to_string()).expect_err("the values are wrong");
    assert!(error.contains("spec.containers[0].imagePullPolicy") && error.contains("Sometimes"), "{error}");
    assert!(error.contains("spec.containers[0].volumeMounts[0].name: Not found: \"none\""), "{error}");
    let mut unknown = pod("unknown", &node.name, json!([shell("c", "true")]));
    unknown["spec"]["containers"][0]["comand"] = json!(["true"]);
    let error = kubectl.try_apply(&unknown.to_string()).expect_err("the field is wrong");
    assert!(error.contains("spec.containers[0].comand"), "{error}");

    let archive = cluster.folder().join("busybox.tar");
    let bad = cluster.folder().join("bad.tar");
    let make = |script: &str| {
        let script = format!("set -e; rm -rf $0/x; mkdir $0/x; tar -xf $0/busybox.tar -C $0/x; cd $0/x; {script}");
        let done = Command::new("sh").args(["-c", &script]).arg(cluster.folder()).status().expect("sh starts");
        assert!(done.success(), "{script}");
    };
    let bytes = std::fs::read(&archive).expect("the archive");
    std::fs::write(&bad, &bytes[..bytes.len() / 2]).expect("written");
    let import = |node: &EdgeNode| node.edge(&["import", &bad.display().to_string()]).expect_err("a bad archive");
    let error = import(&node);
    assert!(!error.contains("panicked") && error.contains("bad.tar"), "{error}");
    // A layer that differs from the one that the configuration names.
    make(&format!(
        "new={}; c=$(ls *.json | grep -v manifest); sed -i s/sha256:[0-9a-f]*/sha256:$new/ $c; {RENAME}",
        "0".repeat(64)
    ));
    let error = import(&node);
    assert!(error.contains("sha256:"), "{error}");
    // A layer with a path outside its root, with the right digest.
    make(&format!(
        "l=$(ls */layer.tar); echo x >../climbed; tar -P -cf $l ../climbed; rm ../climbed; \
        new=$(sha256sum $l | cut -d' ' -f1); c=$(ls *.json | grep -v manifest); \
        sed -i s/sha256:[0-9a-f]*/sha256:$new/ $c; {RENAME}"
    ));
    let error = import(&node);
    assert!(error.contains("../climbed"), "{error}");
    assert!(!node.root().join("var/lib/edge-runtime/layers/climbed").exists());
    assert!(node.edge_ok(&["images"]).contains(BUSYBOX), "the good image is still there");

    let error = node.edge(&["dance"]).expect_err("no such verb");
    assert!(error.contains("unknown verb dance"), "{error}");

    let config = node.root().join("etc/edge-runtime/config.yaml");
    let held = std::fs::read_to_string(&config).ok();
    std::fs::write(&config, "max-pots: 3\n").expect("written");
    node.kill();
    let error = node.edge(&["run", "--print-config"]).expect_err("the key is unknown");
    assert!(error.contains("config.yaml") && error.contains("max-pots"), "{error}");
    for (section, said) in [
        ("{color: 1}", "device-twin.color: unknown field"),
        ("{report: {per-second: 0}}", "device-twin.report.per-second: "),
    ] {
        std::fs::write(&config, format!("device-twin: {section}\n")).expect("written");
        let error = node.edge(&["run", "--print-config"]).expect_err("the section is wrong");
        assert!(error.contains("config.yaml") && error.contains(said), "{error}");
    }
    // An unknown key of another version does not prevent a start.
    std::fs::write(&config, "max-pots: 3\ndevice-twin: {color: 1}\n").expect("written");
    node.start();
    kubectl.wait_ready("good");
    let log = node.log();
    assert!(log.contains("max-pots") && log.contains("device-twin.color"), "it is told: {log}");
    assert_eq!(node.container_pids(), before);
    node.kill();
    match held {
        Some(text) => std::fs::write(&config, text).expect("written"),
        None => std::fs::remove_file(&config).expect("removed"),
    }
    node.start();
    kubectl.wait_ready("good");
    assert_eq!(node.container_pids(), before, "nothing of this touched the running pod");
}

#[test]
fn a_token_serves_once_and_a_name_belongs_to_its_certificate() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("names");
    let mut node = cluster.node("edge");
    let token = cluster.token("second");
    let bridge = format!("https://{}", cluster.listen);
    let join = |root: &str, name: &str, token: &str| {
        let output = Command::new(binary("edge-runtime"))
            .args(["join", "--root"])
            .arg(cluster.folder().join(root))
            .args(["--bridge", &bridge, "--token", token, "--node", name])
            .output()
            .expect("starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(text) }
    };
    let error = join("o", "other", &token).expect_err("the token is for another node");
    assert!(error.contains("another node") && error.contains("other"), "{error}");
    join("s", "second", &token).expect("the first use");
    let error = join("t", "second", &token).expect_err("the second use");
    assert!(error.contains("the join token") && error.contains("used already"), "{error}");

    // Another node's identity with this node's name in it: the certificate decides.
    let thief = cluster.folder().join("s/var/lib/edge-runtime/identity/identity.json");
    let text = std::fs::read_to_string(&thief).expect("an identity");
    std::fs::write(&thief, text.replace("\"second\"", &format!("\"{}\"", node.name))).expect("written");
    let mut impostor = Command::new(binary("edge-runtime"))
        .args(["run", "--root"])
        .arg(cluster.folder().join("s"))
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(cluster.folder().join("impostor.log")).expect("a log"))
        .spawn()
        .expect("starts");
    until(Duration::from_secs(15), "the impostor is refused", || {
        let log = std::fs::read_to_string(cluster.folder().join("impostor.log")).unwrap_or_default();
        let refused = log.to_lowercase().contains("refuse") && log.contains("second");
        if refused { Ok(()) } else { Err(format!("{log}\n{}", cluster.log())) }
    });
    let _ = impostor.kill();
    let _ = impostor.wait();
    let reset = Command::new(binary("edge-runtime"))
        .args(["reset", "--all", "--root"])
        .arg(cluster.folder().join("s"))
        .output();
    assert!(reset.is_ok_and(|output| output.status.success()));

    // Garbage at the port of the link.
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 0, 0][..], &[0; 4096][..]] {
        let mut socket = TcpStream::connect(cluster.listen).expect("connects");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    node.kill();
    node.start();
    cluster.kubectl.apply_all(&[pod("p", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("p");
}

#[test]
fn a_damaged_store_is_set_aside_and_filled_again() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("store");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[pod("p", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    kubectl.wait_ready("p");
    let before = node.container_pids();
    node.edge_ok(&["copy"]);
    node.kill();
    let state = node.root().join("var/lib/edge-runtime");
    std::fs::write(state.join("store.db"), [0x5a; 8192]).expect("overwritten");
    for name in ["store.db-wal", "store.db-shm"] {
        let _ = std::fs::remove_file(state.join(name));
    }
    node.start();
    until(Duration::from_secs(15), "the damage is in the log", || {
        let log = node.log();
        if log.contains("the store was damaged") { Ok(()) } else { Err(log) }
    });
    let aside = std::fs::read_dir(&state).expect("a folder").flatten();
    assert!(aside.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with("store.db.")));
    node.wait_connected(&cluster);
    until(Duration::from_secs(20), "the list has come", || {
        let log = node.log();
        if log.contains("the list is complete") { Ok(()) } else { Err(log) }
    });
    kubectl.wait_ready("p");
    assert_eq!(node.container_pids(), before, "the copy knew the pod");
    assert!(node.edge_ok(&["images"]).contains(BUSYBOX));
}

#[test]
fn a_damaged_identity_keeps_no_pod_from_running() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("identity");
    let mut node = cluster.node("edge");
    cluster.kubectl.apply_all(&[pod("a", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("a");
    node.kill();
    let pid = node.container_pids().into_values().next().expect("a container");
    std::fs::write(node.root().join("var/lib/edge-runtime/identity/identity.json"), "{").expect("damaged");
    node.start();
    sampan_tests::process::signal(pid, "KILL");
    until(Duration::from_secs(20), "the container starts again without a cloud", || {
        let new = node.container_pids().into_values().any(|new| new != pid);
        if new { Ok(()) } else { Err(node.log()) }
    });
    assert!(node.log().contains("identity.json") && node.log().contains("edge-runtime join"), "{}", node.log());
    node.kill();
    let (token, bridge) = (cluster.token(&node.name), format!("https://{}", cluster.listen));
    node.edge_ok(&["join", "--bridge", &bridge, "--token", &token, "--node", &node.name]);
    node.start();
    node.wait_connected(&cluster);
}
