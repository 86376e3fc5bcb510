//! The node authorizer, row by row as Kubernetes' own tests of it have them, and what `restrict` and `references` promise.

use serde_json::{Value, json};

use super::references::{Kind, needs_api_object, of_pod};
use super::{Relations, authorize};
use crate::admission::node_restriction::forbidden_labels;
use crate::auth::Attributes;
use crate::auth::request_info::target;

/// A pod that names one object of each kind, `KIND-NAME` by its own name.
fn pod(name: &str, node: &str) -> Value {
    let own = |kind: &str| format!("{kind}-{name}");
    json!({
        "metadata": {"name": name, "namespace": "ns0"},
        "spec": {
            "nodeName": node,
            "serviceAccountName": own("account"),
            "imagePullSecrets": [{"name": "secret-shared"}],
            "containers": [{"envFrom": [{"secretRef": {"name": own("secret")}}], "env": [
                {"valueFrom": {"configMapKeyRef": {"name": own("configmap"), "key": "k"}}},
            ]}],
            "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": own("claim")}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            ],
        },
    })
}

fn volume(name: &str, pod: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "claimRef": {"namespace": "ns0", "name": format!("claim-{pod}")},
            "csi": {
                "nodePublishSecretRef": {"namespace": "vault", "name": format!("secret-of-{name}")},
                "controllerPublishSecretRef": {"namespace": "vault", "name": format!("controller-of-{name}")},
            },
        },
    })
}

fn attachment(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": node}})
}

const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";

fn graph() -> Relations {
    let mut relations = Relations::default();
    for attachment in [attachment("csi-0", "node0"), attachment("csi-1", "node1")] {
        relations.write(ATTACHMENTS, None, Some(&attachment));
    }
    let mut mirror = pod("mirror0", "node0");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    for pod in [pod("pod0", "node0"), pod("pod1", "node1"), pod("nowhere", ""), mirror] {
        relations.write("pods", None, Some(&pod));
    }
    for volume in [volume("pv0", "pod0"), volume("pv1", "pod1")] {
        relations.write("persistentvolumes", None, Some(&volume));
    }
    relations
}

const NONE: &str = "no relationship found between node 'node0' and this object";
const LEASE: &str = "can only access node lease with the same name as the requesting node";
const CSI_NODE: &str = "can only access CSINode with the same name as the requesting node";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Method, path, query; and why not, `Ok` for allowed.
#[test]
fn the_authorizer_decides_as_that_of_kubernetes() {
    let core = |rest: &str| format!("/api/v1/namespaces/ns0/{rest}");
    let lease = |name: &str| format!("{LEASES}/{name}");
    let storage = |rest: &str| format!("/apis/storage.k8s.io/v1/{rest}");
    let elsewhere = |name: &str| format!("/apis/coordination.k8s.io/v1/namespaces/foo/leases/{name}");
    let rows: Vec<(&str, String, &str, Result<(), &str>)> = vec![
        ("GET", core("configmaps/configmap-pod0"), "", Ok(())),
        ("GET", core("secrets/secret-pod0"), "", Ok(())),
        ("GET", core("secrets"), "fieldSelector=metadata.name%3Dsecret-pod0", Ok(())),
        ("GET", core("secrets"), "watch=1&fieldSelector=metadata.name%3Dsecret-pod0", Ok(())),
        ("GET", core("secrets"), "", Err("No Object name found")),
        ("GET", core("secrets"), "watch=1", Err("No Object name found")),
        (
            "GET",
            "/api/v1/secrets".into(),
            "fieldSelector=metadata.name%3Dsecret-pod0",
            Err("can only read namespaced object of this type"),
        ),
        ("GET", core("secrets/secret-shared"), "", Ok(())),
        ("GET", "/api/v1/namespaces/vault/secrets/secret-of-pv0".into(), "", Ok(())),
        ("GET", "/api/v1/namespaces/vault/secrets/secret-of-pv1".into(), "", Err(NONE)),
        ("GET", "/api/v1/namespaces/vault/secrets/controller-of-pv0".into(), "", Err(NONE)),
        ("GET", "/api/v1/namespaces/other/secrets/secret-pod0".into(), "", Err(NONE)),
        ("GET", core("secrets/secret-pod0/status"), "", Err("cannot read subresource")),
        ("PUT", core("secrets/secret-pod0"), "", Err("can only read resources of this type")),
        ("POST", core("configmaps"), "", Err("can only read resources of this type")),
        ("DELETE", core("configmaps"), "", Err("can only read resources of this type")),
        ("GET", core("persistentvolumeclaims/claim-pod0"), "", Ok(())),
        ("GET", core("persistentvolumeclaims/pod0-scratch"), "", Ok(())),
        ("GET", core("persistentvolumeclaims/claim-pod0/status"), "", Err("can only get/update/patch this type")),
        ("PATCH", core("persistentvolumeclaims/claim-pod0/status"), "", Ok(())),
        ("PATCH", core("persistentvolumeclaims/claim-pod1/status"), "", Err(NONE)),
        ("PATCH", core("persistentvolumeclaims/claim-pod0"), "", Err("can only get individual resources of this type")),
        ("GET", core("persistentvolumeclaims"), "", Err("can only get individual resources of this type")),
        ("GET", "/api/v1/persistentvolumes/pv0".into(), "", Ok(())),
        ("GET", "/api/v1/persistentvolumes/pv1".into(), "", Err(NONE)),
        ("GET", "/api/v1/persistentvolumes".into(), "", Err("can only get individual resources of this type")),
        ("GET", "/api/v1/persistentvolumes/pv0/status".into(), "", Err("cannot get subresource")),
        ("GET", core("configmaps/configmap-pod1"), "", Err(NONE)),
        ("GET", core("secrets/secret-pod1"), "", Err(NONE)),
        ("GET", core("persistentvolumeclaims/claim-pod1"), "", Err(NONE)),
        // References of a mirror pod or of a pod without a node give no access.
        ("GET", core("secrets/secret-nowhere"), "", Err(NONE)),
        ("GET", core("secrets/secret-mirror0"), "", Err(NONE)),
        ("GET", core("configmaps/configmap-mirror0"), "", Err(NONE)),
        ("GET", core("serviceaccounts/account-mirror0"), "", Err(NONE)),
        ("GET", core("persistentvolumeclaims/claim-mirror0"), "", Err(NONE)),
        ("POST", core("serviceaccounts/account-pod0/token"), "", Ok(())),
        ("POST", core("serviceaccounts/account-pod1/token"), "", Err(NONE)),
        ("POST", core("serviceaccounts/account-pod0"), "", Err("can only create token subresource of serviceaccount")),
        (
            "PUT",
            core("serviceaccounts/account-pod0/token"),
            "",
            Err("can only create tokens for individual service accounts"),
        ),
        ("GET", core("serviceaccounts/account-pod0"), "", Ok(())),
        ("GET", core("serviceaccounts/account-pod1"), "", Err(NONE)),
        ("GET", core("serviceaccounts"), "", Err("can only create tokens for individual service accounts")),
        ("GET", elsewhere("node0"), "", Err("can only access leases in the \"kube-node-lease\" system namespace")),
        ("PUT", elsewhere("node0"), "", Err("can only access leases in the \"kube-node-lease\" system namespace")),
        ("DELETE", elsewhere("node0"), "", Err("can only access leases in the \"kube-node-lease\" system namespace")),
        ("GET", lease("node1"), "", Err(LEASE)),
        ("PUT", lease("node1"), "", Err(LEASE)),
        ("PATCH", lease("node1"), "", Err(LEASE)),
        ("DELETE", lease("node1"), "", Err(LEASE)),
        ("GET", LEASES.into(), "", Err("can only get, create, update, patch, or delete a node lease")),
        ("GET", LEASES.into(), "watch=1", Err("can only get, create, update, patch, or delete a node lease")),
        ("GET", lease("node0"), "", Ok(())),
        ("POST", LEASES.into(), "", Ok(())),
        ("PUT", lease("node0"), "", Ok(())),
        ("PATCH", lease("node0"), "", Ok(())),
        ("DELETE", lease("node0"), "", Ok(())),
        ("GET", core("pods/pod0"), "", Ok(())),
        ("GET", core("pods/mirror0"), "", Ok(())),
        ("GET", core("pods/pod1"), "", Err(NONE)),
        ("GET", core("pods/nowhere"), "", Err(NONE)),
        ("GET", core("pods/pod0/log"), "", Err("")),
        ("GET", core("pods"), "fieldSelector=metadata.name%3Dpod0", Ok(())),
        ("GET", core("pods"), "fieldSelector=metadata.name%3Dpod1", Err(NONE)),
        ("GET", "/api/v1/pods".into(), "fieldSelector=spec.nodeName%3Dnode0", Ok(())),
        ("GET", "/api/v1/pods".into(), "watch=1&fieldSelector=spec.nodeName%3D%3Dnode0", Ok(())),
        (
            "GET",
            "/api/v1/pods".into(),
            "fieldSelector=spec.nodeName%3Dnode1",
            Err("can only list/watch pods with spec.nodeName field selector"),
        ),
        (
            "GET",
            "/api/v1/pods".into(),
            "fieldSelector=spec.nodeName%21%3Dnode0",
            Err("can only list/watch pods with spec.nodeName field selector"),
        ),
        ("GET", "/api/v1/pods".into(), "", Err("can only list/watch pods with spec.nodeName field selector")),
        // Admission decides which pods.
        ("POST", core("pods"), "", Ok(())),
        ("DELETE", core("pods/pod1"), "", Ok(())),
        ("PATCH", core("pods/pod1/status"), "", Ok(())),
        ("POST", core("pods/pod1/eviction"), "", Ok(())),
        ("PATCH", core("pods/pod0"), "", Err("")),
        ("PUT", core("pods/pod0"), "", Err("")),
        ("GET", core("pods/pod0/status"), "", Err("")),
        ("POST", core("pods/pod0/binding"), "", Err("")),
        ("PATCH", core("pods/pod0/ephemeralcontainers"), "", Err("")),
        ("POST", core("pods/pod0/exec"), "", Err("")),
        ("DELETE", core("pods"), "", Err("")),
        ("GET", "/api/v1/nodes/node0".into(), "", Ok(())),
        ("GET", "/api/v1/nodes".into(), "fieldSelector=metadata.name%3Dnode0", Ok(())),
        ("GET", "/api/v1/nodes/node1".into(), "", Err("node 'node0' cannot read 'node1', only its own Node object")),
        ("GET", "/api/v1/nodes".into(), "", Err("node 'node0' cannot read all nodes, only its own Node object")),
        ("POST", "/api/v1/nodes".into(), "", Ok(())),
        ("PATCH", "/api/v1/nodes/node1".into(), "", Ok(())),
        ("PATCH", "/api/v1/nodes/node0/status".into(), "", Ok(())),
        ("GET", "/api/v1/nodes/node0/status".into(), "", Err("")),
        ("GET", "/api/v1/nodes/node0/proxy/pods".into(), "", Err("")),
        ("DELETE", "/api/v1/nodes/node0".into(), "", Err("")),
        ("GET", core("services"), "", Ok(())),
        ("POST", core("services"), "", Err("")),
        ("GET", core("services/a/status"), "", Err("")),
        ("POST", core("events"), "", Ok(())),
        ("GET", core("events"), "", Err("")),
        ("DELETE", core("events/e"), "", Err("")),
        ("GET", "/apis/node.k8s.io/v1/runtimeclasses".into(), "", Ok(())),
        ("GET", storage("csidrivers"), "watch=1", Ok(())),
        ("POST", storage("csidrivers"), "", Err("")),
        ("GET", storage("volumeattachments/csi-0"), "", Ok(())),
        ("GET", storage("volumeattachments/csi-1"), "", Err(NONE)),
        ("GET", storage("volumeattachments/csi-0/status"), "", Err("cannot get subresource")),
        ("GET", storage("volumeattachments"), "", Err("can only get individual resources of this type")),
        ("DELETE", storage("volumeattachments/csi-0"), "", Err("can only get individual resources of this type")),
        ("POST", storage("csinodes"), "", Ok(())),
        ("GET", storage("csinodes/node0"), "", Ok(())),
        ("PATCH", storage("csinodes/node0"), "", Ok(())),
        ("DELETE", storage("csinodes/node0"), "", Ok(())),
        ("PUT", storage("csinodes/node1"), "", Err(CSI_NODE)),
        ("GET", storage("csinodes"), "", Err("can only get, create, update, patch, or delete a CSINode")),
        ("GET", storage("csinodes/node0/status"), "", Err("cannot authorize CSINode subresources")),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews".into(), "", Ok(())),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews".into(), "", Ok(())),
        ("GET", "/api/v1/namespaces".into(), "", Err("")),
        ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into(), "", Err("")),
    ];
    let relations = graph();
    for (method, path, query, expected) in rows {
        let query = crate::auth::request_info::Query::parse(query);
        let attributes = Attributes::new(method, &target(&path), query.flag("watch"), query.text("fieldSelector"));
        let found = authorize(&relations, "node0", &attributes);
        assert_eq!(found, expected.map_err(str::to_owned), "{method} {path} {query:?}");
    }
}

#[test]
fn what_has_gone_or_changed_gives_no_access() {
    let mut relations = graph();
    let has = |relations: &Relations, name: &str| relations.has("node0", Kind::Secret, "ns0", name);
    // A second pod names the shared secret too: access ends with the last one.
    relations.write("pods", None, Some(&pod("again", "node0")));
    relations.write("pods", Some(&pod("pod0", "node0")), None);
    assert!(!has(&relations, "secret-pod0") && has(&relations, "secret-shared") && has(&relations, "secret-again"));
    // Bound, then with one more container, then deleted.
    relations.write("pods", Some(&pod("nowhere", "")), Some(&pod("nowhere", "node0")));
    assert!(has(&relations, "secret-nowhere"));
    let mut more = pod("nowhere", "node0");
    more["spec"]["ephemeralContainers"] = json!([{"envFrom": [{"secretRef": {"name": "late"}}]}]);
    relations.write("pods", Some(&pod("nowhere", "node0")), Some(&more));
    assert!(has(&relations, "late"));
    let mut mirror = pod("mirror0", "node0");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    for gone in [more, pod("again", "node0"), pod("pod1", "node1"), mirror] {
        relations.write("pods", Some(&gone), None);
    }
    for gone in [volume("pv0", "pod0"), volume("pv1", "pod1")] {
        relations.write("persistentvolumes", Some(&gone), None);
    }
    for gone in [attachment("csi-0", "node0"), attachment("csi-1", "node1")] {
        relations.write(ATTACHMENTS, Some(&gone), None);
    }
    assert!(relations.is_empty());
}

#[test]
fn references_are_found_everywhere() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "serviceAccountName": "sa",
        "imagePullSecrets": [{"name": "pull"}],
        "volumes": [
            {"secret": {"secretName": "vol"}}, {"projected": {"sources": [{"configMap": {"name": "proj"}}]}},
            {"persistentVolumeClaim": {"claimName": "pvc"}}, {"cinder": {"secretRef": {"name": "cinder"}}},
        ],
        "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "init"}}}]}],
        "containers": [{"envFrom": [{"configMapRef": {"name": "from"}}]}],
    }});
    let mut found = Vec::new();
    of_pod(&pod, &mut |kind, name| found.push((kind, name.to_owned())));
    let expected = [
        (Kind::ServiceAccount, "sa"),
        (Kind::Secret, "pull"),
        (Kind::ConfigMap, "from"),
        (Kind::Secret, "init"),
        (Kind::Secret, "vol"),
        (Kind::ConfigMap, "proj"),
        (Kind::Claim, "pvc"),
        (Kind::Secret, "cinder"),
    ];
    assert_eq!(found, expected.map(|(kind, name)| (kind, name.to_owned())));
}

#[test]
fn what_a_mirror_pod_may_not_need() {
    let with_volume = |volume: Value| json!({"spec": {"volumes": [volume]}});
    for (pod, expected) in [
        (json!({"spec": {"containers": [{"env": [{"name": "a", "value": "b"}]}]}}), None),
        (json!({"spec": {"serviceAccountName": "sa"}}), Some("serviceaccounts")),
        (json!({"spec": {"imagePullSecrets": [{"name": "a"}]}}), Some("secrets")),
        (json!({"spec": {"containers": [{"envFrom": [{"configMapRef": {"name": "a"}}]}]}}), Some("configmaps")),
        (json!({"spec": {"resourceClaims": [{"name": "a"}]}}), Some("resourceclaims")),
        (with_volume(json!({"emptyDir": {}})), None),
        (with_volume(json!({"hostPath": {"path": "/a"}})), None),
        (with_volume(json!({"configMap": {}})), Some("configmaps (via configmap volumes)")),
        (with_volume(json!({"persistentVolumeClaim": {"claimName": "a"}})), Some("persistentvolumeclaims")),
        (with_volume(json!({"ephemeral": {}})), Some("persistentvolumeclaims (via ephemeral volumes)")),
        (with_volume(json!({"csi": {"driver": "a"}})), Some("csidrivers (via CSI volumes)")),
        (with_volume(json!({"projected": {"sources": [{"downwardAPI": {}}]}})), None),
        (
            with_volume(json!({"projected": {"sources": [{"downwardAPI": {}}, {"serviceAccountToken": {}}]}})),
            Some("serviceaccounts (via projected volumes)"),
        ),
        (with_volume(json!({"projected": {"sources": [{"clusterTrustBundle": {}}]}})), Some("clustertrustbundles")),
        (
            with_volume(json!({"projected": {"sources": [{"new": {}}]}})),
            Some("an unknown source of a projected volume"),
        ),
        (with_volume(json!({"new": {}})), Some("an unknown kind of volume")),
    ] {
        assert_eq!(needs_api_object(&pod), expected, "{pod}");
    }
}

#[test]
fn kubernetes_labels_are_reserved() {
    for (key, free) in [
        ("mine", true),
        ("example.com/a", true),
        ("kubernetes.io/hostname", true),
        ("topology.kubernetes.io/zone", true),
        ("failure-domain.beta.kubernetes.io/region", true),
        ("node.kubernetes.io/z", true),
        ("foo.kubelet.kubernetes.io/z", true),
        ("other.kubernetes.io/foo", false),
        ("other.k8s.io/foo", false),
        ("kubernetes.io/other", false),
        ("node-restriction.kubernetes.io/foo", false),
        ("foo.node-restriction.kubernetes.io/foo", false),
    ] {
        let with = |value: &str| json!({key: value});
        for (new, old, change) in [
            (with("1"), Value::Null, "added"),
            (json!({}), with("1"), "removed"),
            (with("2"), with("1"), "changed"),
            (with(""), Value::Null, "added empty"),
        ] {
            assert_eq!(forbidden_labels(&new, &old).is_empty(), free, "{key} {change}");
        }
        assert!(forbidden_labels(&with("1"), &with("1")).is_empty(), "{key} unchanged");
    }
}
