//! Pulls under the administrator's rules: ahead of time, slowly, or not now.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::ports::free_address;
use sampan_tests::process::Process;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::json;

use crate::configure;

fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[test]
fn images_come_ahead_of_time_slowly_or_not_now() {
    if !can_run() || !installed("docker-registry") || !installed("skopeo") {
        return;
    }
    let cluster = Cluster::start("rules");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    let address = free_address();
    let settings = cluster.folder().join("registry.yml");
    let storage = cluster.folder().join("registry");
    let text = json!({"version": 0.1, "log": {"level": "warn"}, "http": {"addr": address.to_string()},
        "storage": {"filesystem": {"rootdirectory": storage}}});
    std::fs::write(&settings, text.to_string()).expect("written");
    let _registry =
        Process::start(Command::new("docker-registry").arg("serve").arg(&settings), &cluster.folder().join("r.log"));
    // Other content than the node has, of which half a megabyte cannot be compressed away.
    let (program, archive) = (cluster.folder().join("slow-busybox"), cluster.folder().join("slow.tar"));
    let mut bytes = std::fs::read("/bin/busybox").expect("busybox-static");
    bytes.extend(b"slow");
    std::fs::write(&program, bytes).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("a mode");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/lib/make-busybox-image.sh");
    let made = Command::new(script).arg(&archive).arg("slow:1").env("BUSYBOX", &program).status();
    assert!(made.expect("the script starts").success());
    let from = format!("docker-archive:{}", archive.display());
    until(Duration::from_secs(15), "the image is pushed", || {
        let to = format!("docker://{address}/tools/slow:1");
        let args = ["copy", "-q", "--insecure-policy", "--dest-tls-verify=false", &from, &to];
        let output = Command::new("skopeo").args(args).output().expect("skopeo starts");
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    });

    let image = format!("{address}/tools/slow:1");
    let hour = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() / 3600;
    let closed = format!("{:02}:00-{:02}:00", (hour + 3) % 24, (hour + 4) % 24);
    configure(&node, &format!("registry: [{{host: '{address}', plain-http: true}}]\npull: {{window: '{closed}'}}\n"));
    node.start();
    node.wait_ready();
    let container = with(shell("c", "exec sleep 1000"), &json!({"image": image, "imagePullPolicy": "IfNotPresent"}));
    kubectl.apply_all(&[pod("waits", &on, json!([container]))]);
    let waiting = kubectl.wait_pod("waits", 20, "waits for the window", |pod| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        waiting["message"].as_str().is_some_and(|message| message.contains(&closed))
    });
    assert!(waiting["status"].to_string().contains("pull.window"), "{}", waiting["status"]);

    node.kill();
    let slowly = format!("pull: {{images: ['{image}'], bytes-per-second: 200000}}\n");
    configure(&node, &format!("registry: [{{host: '{address}', plain-http: true}}]\n{slowly}"));
    let began = Instant::now();
    node.start();
    kubectl.wait_ready("waits");
    assert!(began.elapsed() > Duration::from_secs(3), "a megabyte at 200 kB/s: {:?}", began.elapsed());
    assert!(node.edge_ok(&["images"]).contains("tools/slow"));
    let _ = kubectl.ok(&["delete", "pod", "waits", "--wait=false"]);
    kubectl.wait_gone("pod", "waits", 20);
    node.edge_ok(&["images", "--remove", &image]);
    node.kill();
    node.start();
    until(Duration::from_secs(60), "it is fetched before a pod asks", || {
        let images = node.edge(&["images"])?;
        if images.contains("tools/slow") { Ok(()) } else { Err(images) }
    });
    kubectl.wait_event("waits", "Pulled");
}
