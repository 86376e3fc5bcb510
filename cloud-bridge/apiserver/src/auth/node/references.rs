//! Which objects a pod and a volume name, as the node authorizer's graph and the rule on mirror pods need it. Pure;
//! follows podutil's VisitPodSecretNames, VisitPodConfigmapNames and HasAPIObjectReference of Kubernetes.

use serde_json::Value;

use apimachinery::json::{items, present, text};

/// Kinds of objects that a node may read because of one of its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Pod,
    Secret,
    ConfigMap,
    ServiceAccount,
    Claim,
}

/// Volumes with a secret in their `secretRef`.
const SECRET_REF: &[&str] = &["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"];

/// Calls `tell` with every object that the pod names.
pub(crate) fn of_pod(pod: &Value, tell: &mut dyn FnMut(Kind, &str)) {
    let spec = &pod["spec"];
    let mut tell = |kind, name: &str| {
        if !name.is_empty() {
            tell(kind, name);
        }
    };
    tell(Kind::ServiceAccount, text(spec, "serviceAccountName"));
    for secret in items(spec, "imagePullSecrets") {
        tell(Kind::Secret, text(secret, "name"));
    }
    for container in ["containers", "initContainers", "ephemeralContainers"].iter().flat_map(|list| items(spec, list)) {
        for from in items(container, "envFrom") {
            tell(Kind::Secret, text(&from["secretRef"], "name"));
            tell(Kind::ConfigMap, text(&from["configMapRef"], "name"));
        }
        for variable in items(container, "env") {
            tell(Kind::Secret, text(&variable["valueFrom"]["secretKeyRef"], "name"));
            tell(Kind::ConfigMap, text(&variable["valueFrom"]["configMapKeyRef"], "name"));
        }
    }
    for volume in items(spec, "volumes") {
        tell(Kind::Secret, text(&volume["secret"], "secretName"));
        tell(Kind::Secret, text(&volume["azureFile"], "secretName"));
        tell(Kind::Secret, text(&volume["csi"]["nodePublishSecretRef"], "name"));
        for kind in SECRET_REF {
            tell(Kind::Secret, text(&volume[*kind]["secretRef"], "name"));
        }
        tell(Kind::ConfigMap, text(&volume["configMap"], "name"));
        for source in items(&volume["projected"], "sources") {
            tell(Kind::Secret, text(&source["secret"], "name"));
            tell(Kind::ConfigMap, text(&source["configMap"], "name"));
        }
        tell(Kind::Claim, text(&volume["persistentVolumeClaim"], "claimName"));
        if present(volume, "ephemeral").is_some() {
            tell(Kind::Claim, &format!("{}-{}", text(&pod["metadata"], "name"), text(volume, "name")));
        }
    }
}

/// The namespaces and names of the secrets that a node needs for a bound PersistentVolume.
pub(crate) fn of_volume(volume: &Value) -> Vec<(String, String)> {
    let spec = &volume["spec"];
    let home = text(&spec["claimRef"], "namespace");
    let mut found = Vec::new();
    let mut tell = |namespace: &str, name: &str| {
        if !name.is_empty() {
            found.push(((if namespace.is_empty() { home } else { namespace }).to_owned(), name.to_owned()));
        }
    };
    for field in ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"] {
        tell(text(&spec["csi"][field], "namespace"), text(&spec["csi"][field], "name"));
    }
    tell(text(&spec["azureFile"], "secretNamespace"), text(&spec["azureFile"], "secretName"));
    for kind in SECRET_REF {
        tell(text(&spec[*kind]["secretRef"], "namespace"), text(&spec[*kind]["secretRef"], "name"));
    }
    found
}

/// Volumes that need nothing of the API.
const PLAIN_VOLUMES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
/// Volumes, and sources of a projected one, that refer to other objects.
const VOLUMES: &[(&str, &str)] = &[
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
const SOURCES: &[(&str, &str)] = &[
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// Returns why this mirror pod is refused: it refers to objects that only a service account gives access to.
pub(crate) fn forbidden_in_mirror(pod: &Value) -> Option<&'static str> {
    let (mut account, mut secret) = (false, false);
    of_pod(pod, &mut |kind, _| {
        account |= kind == Kind::ServiceAccount;
        secret |= kind == Kind::Secret;
    });
    let token = |volume: &Value| {
        let sources = items(&volume["projected"], "sources");
        sources.iter().any(|source| present(source, "serviceAccountToken").is_some())
    };
    if account {
        Some("a mirror pod may not reference service accounts")
    } else if secret {
        Some("a mirror pod may not reference secrets")
    } else if items(&pod["spec"], "volumes").iter().any(token) {
        Some("a mirror pod may not use ServiceAccountToken volume projections")
    } else {
        None
    }
}

/// The resource of another object that the pod needs from the API, if there is one: a mirror pod must not, for its
/// node has made it.
pub(crate) fn needs_api_object(pod: &Value) -> Option<&'static str> {
    let spec = &pod["spec"];
    let mut first = None;
    of_pod(pod, &mut |kind, _| {
        let resource = match kind {
            Kind::ServiceAccount => (0, "serviceaccounts"),
            Kind::Secret => (1, "secrets"),
            Kind::ConfigMap => (2, "configmaps"),
            Kind::Pod | Kind::Claim => return,
        };
        first = Some(first.map_or(resource, |known: (i32, &'static str)| known.min(resource)));
    });
    if let Some((_, resource)) = first {
        return Some(resource);
    }
    if !items(spec, "resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    items(spec, "volumes").iter().find_map(|volume| {
        let has = |kind: &str| present(volume, kind).is_some();
        if let Some((_, resource)) = VOLUMES.iter().find(|(kind, _)| has(kind)) {
            return Some(*resource);
        }
        if has("projected") {
            return items(&volume["projected"], "sources").iter().find_map(|source| {
                let has = |kind: &str| present(source, kind).is_some();
                let known = SOURCES.iter().find(|(kind, _)| has(kind)).map(|(_, resource)| *resource);
                known.or_else(|| (!has("downwardAPI")).then_some("an unknown source of a projected volume"))
            });
        }
        (!PLAIN_VOLUMES.iter().any(|kind| has(kind))).then_some("an unknown kind of volume")
    })
}
