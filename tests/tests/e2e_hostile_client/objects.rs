//! Valid objects, and the same with an invalid field: invalid only for a server that knows the kind.

use serde_json::{Map, Value, json};

use crate::cases::Random;

/// Name of the created objects, which the paths contain.
pub(crate) const NAME: &str = "strange";

/// A kind with an object of it.
#[derive(Debug)]
pub(crate) struct Model {
    /// Below the namespace or the root of its group.
    pub(crate) plural: &'static str,
    /// Path of its collection.
    pub(crate) collection: String,
    pub(crate) object: Value,
}

/// One of each kind; all can be created.
pub(crate) fn models(namespace: &str) -> Vec<Model> {
    let all = [
        ("v1", "Namespace", "namespaces", false, json!({})),
        ("v1", "Node", "nodes", false, json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})),
        ("v1", "PersistentVolume", "persistentvolumes", false, json!({"spec": volume()})),
        ("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", false, json!({"handler": "none"})),
        ("v1", "ConfigMap", "configmaps", true, json!({"data": {"a": "b"}, "binaryData": {"c": "AAAA"}})),
        ("v1", "Secret", "secrets", true, json!({"stringData": {"a": "b"}, "data": {"c": "AAAA"}, "type": "Opaque"})),
        ("v1", "Service", "services", true, json!({"spec": service()})),
        ("v1", "ServiceAccount", "serviceaccounts", true, json!({"secrets": [{"name": "a"}]})),
        (
            "v1",
            "Endpoints",
            "endpoints",
            true,
            json!({"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]}),
        ),
        ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true, json!({"spec": claim()})),
        ("v1", "Pod", "pods", true, json!({"spec": pod()})),
        (
            "coordination.k8s.io/v1",
            "Lease",
            "leases",
            true,
            json!({"spec": {
                "holderIdentity": "a", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z",
            }}),
        ),
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "endpointslices",
            true,
            json!({
                "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"name": "a", "port": 80}],
            }),
        ),
    ];
    let made = |(version, kind, plural, namespaced, rest): (&str, &str, &'static str, bool, Value)| {
        let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let within = if namespaced { format!("/namespaces/{namespace}") } else { String::new() };
        let Value::Object(mut object) = rest else { unreachable!("all are objects") };
        let metadata = json!({
            "name": NAME, "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": [],
            "ownerReferences": [], "managedFields": [],
        });
        object.extend(
            [("apiVersion", json!(version)), ("kind", json!(kind)), ("metadata", metadata)]
                .map(|(k, v)| (k.to_owned(), v)),
        );
        Model { plural, collection: format!("{root}{within}/{plural}"), object: Value::Object(object) }
    };
    all.into_iter().map(made).collect()
}

fn volume() -> Value {
    json!({
        "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/none"},
        "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "none", "name": "none"},
    })
}

fn claim() -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, "storageClassName": "none"})
}

fn service() -> Value {
    json!({"selector": {"a": "b"}, "ports": [{"name": "a", "port": 80, "targetPort": 8080, "protocol": "TCP"}]})
}

/// A pod that no node accepts.
fn pod() -> Value {
    json!({
        "nodeSelector": {"none": "none"}, "restartPolicy": "Always", "terminationGracePeriodSeconds": 1,
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
        ]}}},
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000, "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]},
        "volumes": [
            {"name": "a", "configMap": {"name": "a", "items": [{"key": "a", "path": "b", "mode": 420}]}},
            {"name": "b", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "a", "expirationSeconds": 3600}}]}},
        ],
        "initContainers": [{"name": "i", "image": "none", "restartPolicy": "Always"}],
        "containers": [{
            "name": "a", "image": "none", "command": ["a"], "ports": [{"containerPort": 80, "hostPort": 8080}],
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "1Mi"}},
            "volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "a"}],
            "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1},
            "lifecycle": {"preStop": {"exec": {"command": ["a"]}}},
        }],
    })
}

/// The object with one to three fields removed, duplicated, or set to an invalid value.
pub(crate) fn spoilt(object: &Value, random: &mut Random) -> Vec<u8> {
    let mut object = object.clone();
    for _ in 0..=random.below(3) {
        spoil(&mut object, random);
    }
    object.to_string().into_bytes()
}

fn spoil(value: &mut Value, random: &mut Random) {
    if random.below(6) > 0 {
        match value {
            Value::Object(fields) if !fields.is_empty() => return spoil_field(fields, random),
            Value::Array(elements) if !elements.is_empty() => {
                let at = random.below(elements.len());
                if random.below(8) == 0 {
                    let again = elements[at].clone();
                    elements.push(again);
                } else {
                    spoil(&mut elements[at], random);
                }
                return;
            }
            _ => {}
        }
    }
    *value = strange(random);
}

fn spoil_field(fields: &mut Map<String, Value>, random: &mut Random) {
    let names: Vec<String> = fields.keys().cloned().collect();
    let name = random.one(&names);
    match random.below(12) {
        0 => {
            fields.remove(name);
        }
        1 => {
            let value = fields.remove(name).unwrap_or_default();
            fields.insert((*random.one(&["", "\0", "a/b/c", "$patch", "status", "é"])).to_owned(), value);
        }
        _ => {
            if let Some(value) = fields.get_mut(name) {
                spoil(value, random);
            }
        }
    }
}

fn strange(random: &mut Random) -> Value {
    match random.below(20) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(i64::MIN),
        5 => json!(u64::MAX),
        6 => json!(1e308),
        7 => json!([]),
        8 => json!({}),
        9 => json!([null]),
        10 => json!({"": null}),
        11 => json!([[[{"a": [1]}]]]),
        12 => json!({"matchLabels": 1, "matchExpressions": [{"operator": "In"}]}),
        13 => json!("x".repeat(70_000)),
        other => json!(
            [
                "",
                "\0\u{202e}\n",
                "../../..",
                "1e2147483647",
                "-9223372036854775808",
                "2026-13-45T99:99:99Z",
                "::ffff:1.2.3.4/999"
            ][other.saturating_sub(14).min(6)]
        ),
    }
}
