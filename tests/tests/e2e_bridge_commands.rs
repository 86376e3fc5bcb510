//! Commands on the machine of a standalone bridge: join tokens, kubeconfigs, `doctor`.

use sampan_tests::{Cluster, Kubectl, can_run};
use serde_json::Value;

/// Exit code and output of `cloud-bridge`, for the bridge of this cluster.
fn bridge(cluster: &Cluster, args: &[&str]) -> (Option<i32>, String) {
    let output = cluster.command(args);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn done(cluster: &Cluster, args: &[&str]) -> String {
    let (code, text) = bridge(cluster, args);
    assert_eq!(code, Some(0), "{args:?}: {text}");
    text
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Severity of each of these checks.
fn severities<'a>(found: &'a Value, checks: &[&str]) -> Vec<&'a str> {
    let found = found.as_array().expect("findings");
    let severity =
        |check: &str| found.iter().find(|one| one["check"] == check).and_then(|one| one["severity"].as_str());
    checks.iter().map(|check| severity(check).unwrap_or_else(|| panic!("{check} in {found:?}"))).collect()
}

#[test]
fn tokens_kubeconfigs_and_findings_of_a_standalone_bridge() {
    if !can_run() || std::env::var_os("TEST_KUBECONFIG").is_some() {
        return;
    }
    let mut cluster = Cluster::start("commands");

    let made = json(&done(&cluster, &["token", "create", "pi-1", "-o", "json"]));
    let name = made["name"].as_str().expect("a name");
    assert!(made["command"].as_str().is_some_and(|command| command.contains("join -")), "{made}");
    let listed = json(&done(&cluster, &["token", "list", "-o", "json"]));
    assert_eq!((&listed[0]["name"], &listed[0]["node"]), (&made["name"], &made["node"]), "{listed}");
    assert!(done(&cluster, &["token", "delete", name]).contains("pi-1"));
    assert_eq!(done(&cluster, &["token", "list", "-o", "name"]), "");
    assert_eq!(bridge(&cluster, &["token", "delete", "bridge-authority"]).0, Some(1), "other Secrets are not touched");

    let used = |args: &[&str]| {
        let file = cluster.folder().join("printed.kubeconfig");
        std::fs::write(&file, done(&cluster, args)).expect("written");
        Kubectl::new(&file, &cluster.kubectl.namespace).run(&["get", "pods", "-o", "name"])
    };
    assert_eq!(used(&["kubeconfig"]), Ok(String::new()));
    let refused = used(&["kubeconfig", "--user", "ann"]).expect_err("ann has no rights");
    assert!(refused.contains("User \"ann\" cannot list resource \"pods\""), "{refused}");

    let running = json(&bridge(&cluster, &["doctor", "-o", "json"]).1);
    let checks = ["database", "authority", "kubeconfig", "bridge", "drift", "panics", "nodes"];
    assert_eq!(severities(&running, &checks), ["ok"; 7], "{running}");
    assert_eq!(severities(&running, &["api"]), ["info"], "it listens on loopback: {running}");
    cluster.kill_bridge();
    let (code, text) = bridge(&cluster, &["doctor", "-o", "json"]);
    assert_eq!((code, severities(&json(&text), &["api", "database"])), (Some(4), vec!["error", "ok"]), "{text}");
}
