//! One node with a valid certificate sends every message in every malformed shape: the bridge keeps running, counts no
//! panic, keeps its memory limit, and other nodes are not affected. `TEST_HOSTILE_SECONDS` is its duration (3600 for
//! the long version), `TEST_HOSTILE_SEED` the seed that a failure has printed. The hostile node is `hostile` of
//! `tests/scale`.

use std::process::Command;

use sampan_tests::process::binary;
use sampan_tests::{Cluster, can_run};

/// Limit of the honest nodes' 99th percentile, in milliseconds; times `TEST_PATIENCE`, for test binaries on a busy
/// host.
const P99: u64 = 1000;
/// Limit of the bridge's memory, in MiB.
const MEMORY: u64 = 192;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn g27_a_hostile_node_harms_nobody() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start_with("hostile", &["--deleted-nodes-return"]);
    let (ca, key) = authority(&cluster);
    let pid = cluster.bridge.as_ref().expect("a bridge").pid();
    let mut command = Command::new(binary("hostile"));
    command.arg("--link").arg(cluster.listen.to_string()).arg("--ca").arg(ca).arg("--ca-key").arg(key);
    command.arg("--kubeconfig").arg(&cluster.kubectl.kubeconfig).arg("--pid").arg(pid.to_string());
    command.args(["--p99", &(P99 * number("TEST_PATIENCE").unwrap_or(1)).to_string(), "--memory", &MEMORY.to_string()]);
    for (name, flag) in [("TEST_HOSTILE_SECONDS", "--seconds"), ("TEST_HOSTILE_SEED", "--seed")] {
        if let Some(value) = number(name) {
            command.args([flag, &value.to_string()]);
        }
    }
    let output = command.output().expect("hostile starts: cargo build -p sampan-scale");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    {
        use std::io::Write;
        // Prints figures and the seed, for the reader of the test's log.
        let _ = writeln!(std::io::stderr(), "{said}");
    }
    assert!(output.status.success(), "{said}");
    assert!(cluster.bridge.as_mut().expect("a bridge").is_running(), "the bridge has ended");
    let log = cluster.log();
    let panic = log.lines().find(|line| line.contains("panic at") || line.contains("panicked"));
    assert_eq!(panic, None, "{said}");
    let mut metrics = Command::new(binary("cloud-bridge"));
    metrics.args(["nodes", "--metrics"]);
    match std::env::var_os("TEST_KUBECONFIG") {
        None => metrics.arg("--state").arg(cluster.folder().join("bridge")),
        Some(kubeconfig) => metrics.arg("--kubeconfig").arg(kubeconfig),
    };
    metrics.args(["--bridge", &format!("https://{}", cluster.listen)]);
    let metrics = metrics.output().expect("cloud-bridge starts");
    let text = String::from_utf8_lossy(&metrics.stdout);
    assert!(text.lines().any(|line| line == "sampan_bridge_panics_total 0"), "{text}{:?}", metrics.stderr);
    // Its texts are cut in the log, and cannot forge a line.
    assert!(!log.lines().any(|line| line.starts_with("node admin")), "a forged line");
    let longest = log.lines().map(str::len).max().unwrap_or_default();
    assert!(longest < 4096, "a line of {longest} bytes");
}

/// The bridge's authority as files.
fn authority(cluster: &Cluster) -> (std::path::PathBuf, std::path::PathBuf) {
    if cluster.api_address().is_some() {
        let pki = cluster.folder().join("bridge/pki");
        return (pki.join("ca.crt"), pki.join("ca.key"));
    }
    let files = ["tls.crt", "tls.key"].map(|field| {
        let template = format!("go-template={{{{index .data \"{field}\" | base64decode}}}}");
        let text = cluster.kubectl.ok(&["get", "secret", "bridge-authority", "-n", "sampan-system", "-o", &template]);
        let path = cluster.folder().join(field);
        std::fs::write(&path, text).expect("a file");
        path
    });
    files.into()
}
