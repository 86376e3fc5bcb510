//! Manifests as people write them, good and bad.

use jiff::Timestamp;

use super::*;

const GOOD: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  hostNetwork: true
  containers:
  - name: c
    image: busybox:1
    command: [sh, -c, 'echo \"$(date)\"; sleep 1d']
    resources:
      limits: {memory: 64Mi, cpu: 1}
";

fn take(text: &str) -> Result<Pod, String> {
    parse("web.yaml", text, "edge-1", Timestamp::UNIX_EPOCH).map_err(|e| e.to_string())
}

#[test]
fn yaml_and_json_are_the_same_pod() {
    let pod = take(GOOD).unwrap();
    assert_eq!(pod.metadata.name.as_deref(), Some("web-edge-1"));
    assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
    let uid = pod.metadata.uid.clone().unwrap();
    assert_eq!(uid.len(), 32);
    let notes = pod.metadata.annotations.clone().unwrap();
    assert_eq!((&notes[HASH], notes[SOURCE].as_str(), notes[SEEN].as_str()), (&uid, "file", "1970-01-01T00:00:00Z"));
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("edge-1"));
    assert_eq!(spec.tolerations.as_ref().unwrap().len(), 1);
    assert_eq!(spec.containers[0].resources.as_ref().unwrap().limits.as_ref().unwrap()["cpu"].0, "1");
    let raw: serde_yaml_ng::Value = serde_yaml_ng::from_str(GOOD).unwrap();
    let json = take(&serde_json::to_string(&raw).unwrap()).unwrap();
    assert_eq!(json.spec, pod.spec);
    assert_ne!(json.metadata.uid, pod.metadata.uid);
}

#[test]
fn the_uid_follows_the_content() {
    let uid = |file: &str, text: &str, node: &str| {
        parse(file, text, node, Timestamp::UNIX_EPOCH).unwrap().metadata.uid.unwrap()
    };
    let one = uid("a.yaml", GOOD, "n");
    assert_eq!(one, uid("a.yaml", GOOD, "n"));
    assert_ne!(one, uid("b.yaml", GOOD, "n"));
    assert_ne!(one, uid("a.yaml", GOOD, "m"));
    assert_ne!(one, uid("a.yaml", &GOOD.replace("busybox:1", "busybox:2"), "n"));
}

#[test]
fn problems_name_file_and_field() {
    for (text, problem) in [
        (GOOD.replace("image:", "imgae:"), "unknown field \"spec.containers[0].imgae\""),
        (GOOD.replace("hostNetwork: true", "hostNetwork: maybe"), "spec.hostNetwork: invalid type"),
        (GOOD.replace("kind: Pod", "kind: Deployment"), "apiVersion \"v1\", kind \"Deployment\": expected a v1 Pod"),
        (GOOD.replace("name: web", "name: Web_1"), "metadata.name: invalid value \"Web_1\""),
        (GOOD.replace("image: busybox:1", "image: ''"), "spec.containers[0].image: required value"),
        (GOOD.replace("- name: c", "- name: c\n    name: d"), "not YAML: "),
        (GOOD.replace("  hostNetwork", "\t hostNetwork"), "not YAML: "),
        ("{\"a\": ".to_owned(), "not JSON: "),
        (String::new(), "apiVersion \"\", kind \"\": expected a v1 Pod"),
        (format!("{GOOD}---\n{GOOD}"), "not YAML: "),
        (format!("{GOOD}    volumeMounts: [{{name: v, mountPath: /v}}]\n"), "spec.containers[0].volumeMounts[0].name"),
        (format!("{GOOD}    envFrom: [{{secretRef: {{name: s}}}}]\n"), "static pods may not reference secrets"),
        (
            format!("{GOOD}  volumes: [{{name: v, configMap: {{name: m}}}}]\n"),
            "static pods may not reference configmaps",
        ),
        (format!("{GOOD}  serviceAccountName: x\n"), "static pods may not reference serviceaccounts"),
    ] {
        let error = take(&text).expect_err(&text);
        assert!(error.starts_with(&format!("static pod web.yaml: {problem}")), "{error}");
    }
}

#[test]
fn the_mirror_is_marked() {
    let pod = take(GOOD).unwrap();
    let mirror = mirror(&pod).unwrap();
    assert_eq!((&mirror["metadata"]["uid"], &mirror["status"]), (&Value::Null, &Value::Null));
    assert_eq!(mirror["metadata"]["annotations"][MIRROR], *pod.metadata.uid.as_ref().unwrap());
    assert_eq!(mirror["spec"], serde_json::to_value(&pod.spec).unwrap());
}
