//! Pods that reach the API at an address of their node, through its link to the bridge. Pure.

use k8s_openapi::api::core::v1::{Pod, VolumeProjection};

use super::spec::annotation;
use super::token;

/// Annotation of a pod: `true` to use the local API, any other value not to.
const ANNOTATION: &str = "sampan.dev/local-api";

/// Kind under which a lookup of objects finds the certificate of the local API, as a string of PEM; without namespace
/// and name.
pub const KIND: &str = "LocalApiCertificate";

/// Port of the local API. A pod's variables name it.
pub const PORT: u16 = 6443;

/// ConfigMap with the certificate of the cluster's authority, one in each namespace
/// (K8s pkg/controller/certificates/rootcacertpublisher/publisher.go, `RootCACertConfigMapName`).
const ROOT_CA: &str = "kube-root-ca.crt";
/// Its key.
pub const ROOT_CA_KEY: &str = "ca.crt";

/// Whether the pod uses the local API of a node that has one. `default`: the node's setting for pods without the
/// annotation, which need a token.
pub fn is_used(pod: &Pod, default: bool) -> bool {
    match annotation(pod, ANNOTATION) {
        Some(value) => value == "true",
        None => default && token::wanted(pod).iter().any(|wanted| wanted.audience.is_empty()),
    }
}

/// Whether the source of a projected volume is the certificate of the API that a token in the same volume is for.
pub fn is_root_ca(source: &VolumeProjection, all: &[VolumeProjection]) -> bool {
    let is_named = source.config_map.as_ref().is_some_and(|source| source.name == ROOT_CA);
    is_named && all.iter().any(|other| other.service_account_token.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::testing::annotated;
    use super::*;
    use serde_json::json;

    fn with_sources(sources: serde_json::Value) -> Pod {
        let volumes = json!([{"name": "v", "projected": {"sources": sources}}]);
        serde_json::from_value(json!({"spec": {"containers": [], "volumes": volumes}})).unwrap()
    }

    #[test]
    fn annotation_comes_before_the_default() {
        let used = |value: &str, default| is_used(&annotated(ANNOTATION, value), default);
        assert_eq!(["true", "false", "yes", ""].map(|value| used(value, false)), [true, false, false, false]);
        assert_eq!(["true", "false", ""].map(|value| used(value, true)), [true, false, false]);
    }

    #[test]
    fn default_is_for_pods_with_a_token_of_the_api() {
        let token = with_sources(json!([{"serviceAccountToken": {"path": "token"}}]));
        assert!(is_used(&token, true) && !is_used(&token, false));
        let other = with_sources(json!([{"serviceAccountToken": {"path": "token", "audience": "vault"}}]));
        assert!(!is_used(&other, true) && !is_used(&Pod::default(), true));
    }

    #[test]
    fn certificate_goes_only_beside_a_token() {
        let ca = json!({"configMap": {"name": "kube-root-ca.crt"}});
        let token = json!({"serviceAccountToken": {"path": "token"}});
        let found = |sources: serde_json::Value| {
            let sources: Vec<VolumeProjection> = serde_json::from_value(sources).unwrap();
            sources.iter().filter(|source| is_root_ca(source, &sources)).count()
        };
        assert_eq!(found(json!([ca, token])), 1);
        assert_eq!(found(json!([ca])), 0);
        assert_eq!(found(json!([{"configMap": {"name": "other"}}, token])), 0);
        assert_eq!(found(json!([{"secret": {"name": "kube-root-ca.crt"}}, token])), 0);
    }
}
