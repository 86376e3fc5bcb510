//! kubectl in an old and a current version (`SAMPAN_KUBECTL_OLD`, `SAMPAN_KUBECTL_NEW`).

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, Kubectl, can_run};
use serde_json::json;

#[test]
fn old_and_new_kubectl_feel_at_home() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("kubectl");
    let node = cluster.node("edge");
    let mut tried = 0;
    for variable in ["SAMPAN_KUBECTL_OLD", "SAMPAN_KUBECTL_NEW"] {
        if let Some(program) = std::env::var_os(variable) {
            let kubectl = Kubectl { program: program.into(), ..cluster.kubectl.clone() };
            everyday_use(&kubectl, &node.name);
            deployments(&kubectl);
            tried += 1;
        }
    }
    if tried == 0 {
        everyday_use(&cluster.kubectl, &node.name);
        deployments(&cluster.kubectl);
    }
}

fn everyday_use(kubectl: &Kubectl, node: &str) {
    let space = format!("{}-made", kubectl.namespace);
    let made = kubectl.ok(&["create", "namespace", &space]);
    assert_eq!(made, format!("namespace/{space} created\n"));
    let _ = kubectl.ok(&["create", "configmap", "cm", "--from-literal=a=1"]);
    let _ = kubectl.ok(&["create", "secret", "generic", "s", "--from-literal=b=2"]);
    assert_eq!(kubectl.ok(&["get", "configmap", "cm", "-o", "jsonpath={.data.a}"]), "1");
    assert_eq!(kubectl.ok(&["get", "secret", "s", "-o", "jsonpath={.data.b}"]), "Mg==");

    let mut watch = kubectl
        .command(&["get", "pods", "-w", "--no-headers"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let manifest = pod("p", node, json!([shell("c", "echo hello; exec sleep 1000")]));
    assert_eq!(kubectl.try_apply(&manifest.to_string()).expect("accepted"), "pod/p created\n");
    assert_eq!(kubectl.try_apply(&manifest.to_string()).expect("accepted"), "pod/p unchanged\n");
    let waited = kubectl.ok(&["wait", "--for=condition=Ready", "pod/p", "--timeout=30s"]);
    assert_eq!(waited, "pod/p condition met\n");
    let lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let seen: Vec<String> = lines.take_while(|line| !line.contains("1/1")).collect();
    assert!(seen.iter().any(|line| line.contains("0/1")), "{seen:?}");
    let _ = watch.kill();
    let _ = watch.wait();

    let wide = kubectl.ok(&["get", "pods", "-o", "wide"]);
    let (head, row) = wide.split_once('\n').expect("two lines");
    let head: Vec<&str> = head.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
    assert_eq!(head, ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"]);
    assert!(row.contains("1/1") && row.contains("Running") && row.contains(node), "{row}");
    let yaml = kubectl.ok(&["get", "pod", "p", "-o", "yaml"]);
    assert!(yaml.contains("kind: Pod") && yaml.contains("phase: Running"), "{yaml}");
    let nodes = kubectl.ok(&["get", "nodes"]);
    assert!(nodes.lines().any(|line| line.starts_with(node) && line.contains(" Ready ")), "{nodes}");
    let about = kubectl.ok(&["describe", "pod", "p"]);
    for part in ["Container ID:  runc://", "State:          Running", "Restart Count:  0", "Started", "Node:"] {
        assert!(about.contains(part), "{part} is missing in:\n{about}");
    }
    let about = kubectl.ok(&["describe", "node", node]);
    assert!(about.contains("Allocatable:") && about.contains("MemoryPressure"), "{about}");
    // Events are written after the status.
    for reason in ["Created", "Started"] {
        kubectl.wait_event("p", reason);
    }
    assert_eq!(kubectl.ok(&["logs", "p"]), "hello\n");

    assert!(kubectl.ok(&["label", "pod", "p", "tier=front"]).contains("labeled"));
    assert!(kubectl.ok(&["annotate", "pod", "p", "note=one"]).contains("annotated"));
    assert!(kubectl.ok(&["get", "pods", "-l", "tier=front", "-o", "name"]).contains("pod/p"));
    assert!(kubectl.run(&["label", "pod", "p", "tier=back"]).is_err_and(|error| error.contains("overwrite")));
    let edited = kubectl.command(&["edit", "pod", "p"]).env("EDITOR", "sed -i s/note:.one/note:\\ two/").output();
    let edited = edited.expect("kubectl starts");
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    let note = "jsonpath={.metadata.annotations.note}";
    assert_eq!(kubectl.ok(&["get", "pod", "p", "-o", note]), "two");
    for (kind, patch) in [
        ("merge", r#"{"metadata":{"annotations":{"note":"three"}}}"#),
        ("json", r#"[{"op":"replace","path":"/metadata/annotations/note","value":"four"}]"#),
        ("strategic", r#"{"spec":{"containers":[{"name":"c","image":"busybox:latest"}]}}"#),
    ] {
        assert!(kubectl.ok(&["patch", "pod", "p", "--type", kind, "-p", patch]).contains("patched"), "{kind}");
    }
    assert_eq!(kubectl.ok(&["get", "pod", "p", "-o", note]), "four");
    let list = kubectl.ok(&["get", "pod", "p", "-o", "jsonpath={.spec.containers[*].image}"]);
    assert_eq!(list, "busybox:latest", "one container, patched by its name");
    let refused = kubectl.run(&["patch", "pod", "p", "--type=merge", "-p", r#"{"spec":{"nodeName":"x"}}"#]);
    assert!(refused.is_err_and(|error| error.contains("pod updates may not change fields")));

    let deleted = kubectl.ok(&["delete", "pod", "p"]);
    assert!(deleted.contains("deleted") && kubectl.run(&["get", "pod", "p"]).is_err_and(|e| e.contains("NotFound")));
    let _ = kubectl.ok(&["delete", "configmap/cm", "secret/s"]);
    let _ = kubectl.ok(&["delete", "namespace", &space]);
}

/// A Deployment as an object: its image does not exist, so its pods never run.
fn deployments(kubectl: &Kubectl) {
    let made = kubectl.ok(&["create", "deployment", "web", "--image=busybox:1"]);
    assert_eq!(made, "deployment.apps/web created\n");
    let wide = kubectl.ok(&["get", "deploy", "-o", "wide"]);
    let (head, row) = wide.split_once('\n').expect("two lines");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(head), ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]);
    let row = words(row.lines().next().unwrap_or_default());
    assert_eq!((&row[..2], row[3].as_str()), (&["web".to_owned(), "0/1".to_owned()][..], "0"));
    assert_eq!(row[5..], ["busybox", "busybox:1", "app=web"]);
    assert!(kubectl.ok(&["get", "all"]).contains("deployment.apps/web"));
    let about = kubectl.ok(&["describe", "deployment", "web"]);
    assert!(about.contains("25% max unavailable, 25% max surge") && about.contains("app=web"), "{about}");

    assert!(kubectl.ok(&["set", "image", "deployment/web", "busybox=busybox:2"]).contains("image updated"));
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"busybox","workingDir":"/tmp"}]}}}}"#;
    assert!(kubectl.ok(&["patch", "deployment", "web", "-p", patch]).contains("patched"));
    assert!(kubectl.ok(&["scale", "deployment", "web", "--replicas=4"]).contains("scaled"));
    let mut edit = kubectl.command(&["edit", "deployment", "web"]);
    let edited = edit.env("EDITOR", "sed -i s/replicas:.4/replicas:\\ 3/").output().expect("kubectl starts");
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    let seen = kubectl.ok(&["get", "deployment", "web", "-o", "json"]);
    let seen: serde_json::Value = serde_json::from_str(&seen).expect("JSON");
    let container = &seen["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["workingDir"]), (&json!("busybox:2"), &json!("/tmp")));
    assert_eq!((&seen["spec"]["replicas"], &seen["metadata"]["generation"]), (&json!(3), &json!(5)));

    let template =
        json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "db:1"}]}});
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "db"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}, "template": template}});
    assert_eq!(kubectl.try_apply(&manifest.to_string()).expect("accepted"), "deployment.apps/db created\n");
    assert_eq!(kubectl.try_apply(&manifest.to_string()).expect("accepted"), "deployment.apps/db unchanged\n");
    let deleted = kubectl.ok(&["delete", "deployment", "web", "db"]);
    assert!(deleted.contains("\"web\" deleted") && deleted.contains("\"db\" deleted"), "{deleted}");
}
