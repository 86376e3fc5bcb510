//! The pull secrets of a pod, out of what the cloud sent; knows no registry.

use k8s_openapi::api::core::v1::{Pod, Secret};

use crate::image::access::{PodLogin, secret_key};
use crate::node::context::Context;
use crate::store::secrets::is_withheld;

/// Logins of a pod for registries.
#[derive(Default)]
pub(in crate::node) struct PullSecrets {
    pub(in crate::node) found: Vec<PodLogin>,
    /// Names of those that are not on the node.
    pub(super) missing: Vec<String>,
}

impl PullSecrets {
    /// The kubelet's warning (K8s pkg/kubelet/kubelet_pods.go, `getPullSecretsForPod`): the pull is tried nevertheless.
    pub(in crate::node) fn warning(&self) -> Option<String> {
        let names = self.missing.join(", ");
        (!names.is_empty()).then(|| {
            format!(
                "Unable to retrieve some image pull secrets ({names}); attempting to pull the image may not succeed."
            )
        })
    }
}

pub(in crate::node) fn of_pod(cx: &Context, pod: &Pod) -> PullSecrets {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut secrets = PullSecrets::default();
    let references = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    for name in references.map(|reference| reference.name.as_str()).filter(|name| !name.is_empty()) {
        let object = cx.object("Secret", namespace, name);
        let bodiless = object.as_ref().is_some_and(is_withheld);
        let secret = object.and_then(|object| serde_json::from_value::<Secret>(object).ok());
        let login = match secret {
            Some(secret) => login(namespace, name, &secret),
            None => {
                secrets.missing.push(name.to_owned());
                bodiless.then(|| PodLogin { key: secret_key(namespace, name, ""), document: String::new() })
            }
        };
        secrets.found.extend(login);
    }
    secrets
}

/// The login of a Secret of either type; other types have no login (K8s pkg/credentialprovider/secrets).
fn login(namespace: &str, name: &str, secret: &Secret) -> Option<PodLogin> {
    let key = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => ".dockerconfigjson",
        Some("kubernetes.io/dockercfg") => ".dockercfg",
        _ => return None,
    };
    let document = secret.data.as_ref()?.get(key).filter(|bytes| !bytes.0.is_empty())?;
    let document = String::from_utf8_lossy(&document.0).into_owned();
    let uid = secret.metadata.uid.as_deref().unwrap_or_default();
    Some(PodLogin { key: secret_key(namespace, name, uid), document })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_secrets_of_the_two_types_are_logins() {
        let secret = |kind: &str, key: &str| -> Secret {
            serde_json::from_value(serde_json::json!({
                "metadata": {"uid": "1"}, "type": kind, "data": {key: "e30="}
            }))
            .unwrap()
        };
        let found = |kind, key| login("n", "s", &secret(kind, key));
        let json = found("kubernetes.io/dockerconfigjson", ".dockerconfigjson").unwrap();
        assert_eq!((json.key.as_str(), json.document.as_str()), ("secret:n/s:1", "{}"));
        assert!(found("kubernetes.io/dockercfg", ".dockercfg").is_some());
        assert!(found("kubernetes.io/dockercfg", ".dockerconfigjson").is_none());
        assert!(found("Opaque", ".dockerconfigjson").is_none());
    }

    #[test]
    fn missing_ones_are_named_together() {
        assert_eq!(PullSecrets::default().warning(), None);
        let some = PullSecrets { missing: vec!["a".into(), "b".into()], ..PullSecrets::default() };
        assert!(some.warning().unwrap().starts_with("Unable to retrieve some image pull secrets (a, b); attempting"));
    }
}
