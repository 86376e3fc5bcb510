//! Defaults of a pod.

use sampan_json::SetField;
use serde_json::{Map, Value};

use crate::kinds::defaults::{claim_spec, drop_zero, resource_lists, volume_source};
use apimachinery::json::{flag, items_mut, object_mut, remove, set_default, set_default_text, text};
use apimachinery::quantity::canonicalize;

/// Permissions of files in configMap, secret, downwardAPI and projected volumes.
const FILE_MODE: i64 = 0o644;

/// Fills a pod's defaults.
pub(crate) fn pod(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").filter(|s| s.is_object()) else { return };
    pod_spec(spec);
    // Not in a template: these defaults are set in the created pod.
    set_default(spec, "enableServiceLinks", true);
    let host_network = flag(spec, "hostNetwork");
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items_mut(spec, list) {
            if let Some(resources) = container.get_mut("resources") {
                requests_from_limits(resources);
            }
            if host_network {
                host_ports(container);
            }
        }
    }
    if let Some(resources) = spec.get_mut("resources").filter(|r| r.is_object()) {
        requests_from_limits(resources);
    }
}

/// Fills the defaults of a spec, also of one in a template.
pub(crate) fn pod_spec(spec: &mut Value) {
    drop_zero(
        spec,
        &[
            "hostNetwork",
            "hostPID",
            "hostIPC",
            "nodeName",
            "nodeSelector",
            "tolerations",
            "volumes",
            "hostname",
            "subdomain",
            "initContainers",
            "imagePullSecrets",
            "hostAliases",
            "priorityClassName",
        ],
    );
    same_account(spec);
    set_default_text(spec, "dnsPolicy", "ClusterFirst");
    set_default_text(spec, "restartPolicy", "Always");
    set_default_text(spec, "schedulerName", "default-scheduler");
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_default(spec, "securityContext", Value::Object(Map::new()));
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items_mut(spec, list) {
            self::container(container);
        }
    }
    for volume in items_mut(spec, "volumes") {
        self::volume(volume);
    }
    if let Some(resources) = spec.get_mut("resources").filter(|r| r.is_object()) {
        resource_lists(resources);
    }
    for toleration in items_mut(spec, "tolerations") {
        drop_zero(toleration, &["key", "operator", "value", "effect"]);
    }
    for secret in items_mut(spec, "imagePullSecrets") {
        drop_zero(secret, &["name"]);
    }
    security(spec);
}

/// The SELinux options of a pod or container.
fn security(holder: &mut Value) {
    if let Some(options) = holder.pointer_mut("/securityContext/seLinuxOptions") {
        drop_zero(options, &["user", "role", "type", "level"]);
    }
}

/// Changes of the API server to a new pod beyond defaults: a negative grace period becomes the shortest, and fields of
/// features that are off by default are removed.
pub(crate) fn new_pod(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").filter(|s| s.is_object()) else { return };
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        spec.set("terminationGracePeriodSeconds", 1.into());
    }
    drop_disabled(spec);
}

/// Fields of features that are off by default go, also from a template.
pub(crate) fn drop_disabled(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec, list) {
            let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else { continue };
            if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
                remove(container, "lifecycle");
            }
        }
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`; the API server writes both.
fn same_account(spec: &mut Value) {
    let name = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        name => name,
    }
    .to_owned();
    if name.is_empty() {
        drop_zero(spec, &["serviceAccountName", "serviceAccount"]);
    } else {
        spec.set("serviceAccountName", name.as_str().into());
        spec.set("serviceAccount", name.into());
    }
}

fn container(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    drop_zero(
        container,
        &[
            "stdin",
            "stdinOnce",
            "tty",
            "command",
            "args",
            "env",
            "envFrom",
            "ports",
            "volumeMounts",
            "volumeDevices",
            "workingDir",
        ],
    );
    let policy = if is_latest(text(container, "image")) { "Always" } else { "IfNotPresent" };
    set_default_text(container, "imagePullPolicy", policy);
    set_default_text(container, "terminationMessagePath", "/dev/termination-log");
    set_default_text(container, "terminationMessagePolicy", "File");
    set_default(container, "resources", Value::Object(Map::new()));
    if let Some(resources) = container.get_mut("resources") {
        resource_lists(resources);
    }
    for port in items_mut(container, "ports") {
        set_default_text(port, "protocol", "TCP");
        drop_zero(port, &["hostPort", "name", "hostIP"]);
    }
    for mount in items_mut(container, "volumeMounts") {
        drop_zero(mount, &["readOnly", "subPath", "subPathExpr"]);
    }
    for source in items_mut(container, "envFrom") {
        drop_zero(source, &["prefix"]);
    }
    security(container);
    for var in items_mut(container, "env") {
        drop_zero(var, &["value"]);
        if let Some(source) = var.get_mut("valueFrom").filter(|s| s.is_object()) {
            env_source(source);
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(kind).filter(|p| p.is_object()) {
            self::probe(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = container.pointer_mut(&format!("/lifecycle/{hook}")) {
            handler(hook);
        }
    }
}

fn host_ports(container: &mut Value) {
    for port in items_mut(container, "ports") {
        if port["hostPort"].is_null() && !port["containerPort"].is_null() {
            port.set("hostPort", port["containerPort"].clone());
        }
    }
}

fn env_source(source: &mut Value) {
    if let Some(field) = source.get_mut("fieldRef").filter(|f| f.is_object()) {
        set_default_text(field, "apiVersion", "v1");
    }
    if let Some(field) = source.get_mut("resourceFieldRef").filter(|f| f.is_object()) {
        drop_zero(field, &["containerName"]);
        set_default(field, "divisor", "0");
        if let Some(divisor) = field.get_mut("divisor") {
            canonicalize(divisor);
        }
    }
}

fn probe(probe: &mut Value) {
    drop_zero(
        probe,
        &["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"],
    );
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        set_default(probe, field, value);
    }
    handler(probe);
    if let Some(grpc) = probe.get_mut("grpc").filter(|g| g.is_object()) {
        set_default(grpc, "service", "");
    }
}

/// Defaults of a probe or hook.
fn handler(handler: &mut Value) {
    for way in ["httpGet", "tcpSocket"] {
        if let Some(way) = handler.get_mut(way) {
            drop_zero(way, &["host"]);
        }
    }
    if let Some(get) = handler.get_mut("httpGet") {
        set_default_text(get, "path", "/");
        set_default_text(get, "scheme", "HTTP");
    }
}

fn volume(volume: &mut Value) {
    let Some(map) = volume.as_object_mut() else { return };
    map.retain(|_, value| !value.is_null());
    if map.keys().all(|key| key == "name") {
        map.insert("emptyDir".to_owned(), Value::Object(Map::new()));
    }
    volume_source(volume);
    let Some(map) = volume.as_object_mut() else { return };
    for kind in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = map.get_mut(kind) {
            set_default(source, "defaultMode", FILE_MODE);
            downward_items(source);
        }
    }
    if let Some(projected) = map.get_mut("projected") {
        for source in items_mut(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken").filter(|t| t.is_object()) {
                drop_zero(token, &["audience"]);
                set_default(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = source.get_mut("downwardAPI") {
                downward_items(downward);
            }
        }
    }
    if let Some(path) = map.get_mut("hostPath").filter(|p| p.is_object()) {
        set_default(path, "type", "");
    }
    if let Some(empty) = map.get_mut("emptyDir").filter(|e| e.is_object()) {
        drop_zero(empty, &["medium"]);
        if let Some(limit) = empty.get_mut("sizeLimit") {
            canonicalize(limit);
        }
    }
    if let Some(spec) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        claim_spec(spec);
    }
    if let Some(image) = volume.get_mut("image").filter(|i| i.is_object()) {
        let policy = if is_latest(text(image, "reference")) { "Always" } else { "IfNotPresent" };
        set_default_text(image, "pullPolicy", policy);
    }
}

fn downward_items(source: &mut Value) {
    for item in items_mut(source, "items") {
        env_source(item);
    }
}

/// A limit without a request is its own request.
fn requests_from_limits(resources: &mut Value) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = object_mut(resources, "requests") {
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

/// Whether the tag of an image is `latest`, explicitly or by default; a digest without a tag has no default.
fn is_latest(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, _)) => (name, true),
        None => (image, false),
    };
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !digest,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_idempotent() {
        let mut once = json!({"spec": {"hostNetwork": true, "containers": [{
            "name": "a", "image": "busybox", "resources": {"limits": {"memory": "0.5Gi"}},
            "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}}}],
            "volumes": [{"name": "v"}, {"name": "c", "configMap": {"name": "x"}}]}});
        pod(&mut once);
        let mut twice = once.clone();
        pod(&mut twice);
        assert_eq!(once, twice);
        let container = &once["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"]["memory"], "512Mi");
        assert_eq!(container["ports"][0]["hostPort"], 80);
        assert_eq!(once["spec"]["volumes"][0]["emptyDir"], json!({}));
        assert_eq!(once["spec"]["volumes"][1]["configMap"]["defaultMode"], 420);
    }

    #[test]
    fn zero_values_are_the_same_as_none() {
        let plain = json!({"spec": {
            "imagePullSecrets": [{}],
            "securityContext": {"seLinuxOptions": {"level": "s0"}},
            "containers": [{
                "name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}],
                "livenessProbe": {"tcpSocket": {"port": 1}},
                "readinessProbe": {"httpGet": {"port": 1}},
                "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
                "env": [{"name": "e", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
            }],
            "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "b", "nfs": {"server": "s", "path": "/p"}},
                {"name": "c", "secret": {"optional": true}},
                {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                {"name": "e", "csi": {"driver": "d"}},
            ],
        }});
        let filled = |mut pod: Value| {
            super::pod(&mut pod);
            pod
        };
        let with = |place: &str, field: &str, value: Value| {
            let mut pod = plain.clone();
            pod.pointer_mut(place).unwrap().set(field, value);
            filled(pod)
        };
        for (place, field, zero) in [
            ("/spec/imagePullSecrets/0", "name", json!("")),
            ("/spec/securityContext/seLinuxOptions", "role", json!("")),
            ("/spec/containers/0/envFrom/0", "prefix", json!("")),
            ("/spec/containers/0/livenessProbe/tcpSocket", "host", json!("")),
            ("/spec/containers/0/readinessProbe/httpGet", "host", json!("")),
            ("/spec/containers/0/lifecycle/preStop/httpGet", "host", json!("")),
            ("/spec/containers/0/env/0/valueFrom/resourceFieldRef", "containerName", json!("")),
            ("/spec/volumes/0/persistentVolumeClaim", "readOnly", json!(false)),
            ("/spec/volumes/1/nfs", "readOnly", json!(false)),
            ("/spec/volumes/2/secret", "secretName", json!("")),
            ("/spec/volumes/3/projected/sources/0/serviceAccountToken", "audience", json!("")),
        ] {
            assert_eq!(with(place, field, zero), filled(plain.clone()), "{place} {field}");
        }
        let own = with("/spec/volumes/4/csi", "readOnly", json!(false));
        assert_eq!(own["spec"]["volumes"][4]["csi"]["readOnly"], false, "it is a pointer in Go");
    }

    #[test]
    fn the_tag_decides_the_pull_policy() {
        for (image, latest) in [
            ("busybox", true),
            ("busybox:latest", true),
            ("busybox:1", false),
            ("host:5000/a", true),
            ("a@sha256:0", false),
            ("a:latest@sha256:0", true),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}
