//! Fields and rights of a pod from its service account: a volume with token, authority and namespace, and the allowed
//! secrets. Pure. K8s plugin/pkg/admission/serviceaccount/admission.go.

use sampan_json::SetField;
use serde_json::{Value, json};

use crate::auth::accounts::ROOT_CA;
use apimachinery::json::{items, items_mut, present, text};
use apimachinery::meta;
use apimachinery::well_known::MIRROR_ANNOTATION;

/// The account of pods that name none. Each namespace has it.
pub(super) const DEFAULT: &str = "default";

/// Returns the account of a new pod; `None` for a mirror pod.
pub(super) fn of(pod: &Value) -> Option<&str> {
    if pod["metadata"]["annotations"][MIRROR_ANNOTATION].is_string() {
        return None;
    }
    Some(pod["spec"]["serviceAccountName"].as_str().filter(|name| !name.is_empty()).unwrap_or(DEFAULT))
}

/// Whether a new pod is of the account that its namespace has a moment after it was made.
pub(super) fn is_of_default(pod: &Value) -> bool {
    pod["spec"].is_object() && of(pod) == Some(DEFAULT)
}

/// Path at which programs expect their account.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Prefix of the volume's name: a pod that was copied from another one has it already (`ServiceAccountVolumeName`).
const VOLUME_PREFIX: &str = "kube-api-access-";

/// Annotation of an account whose pods may use no secrets but its own (`EnforceMountableSecretsAnnotation`).
const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

/// One hour and seven seconds: API servers recognise the default lifetime of a token by the seven seconds.
const SECONDS: i64 = 3607;

/// Adds volume and mounts unless pod or account declines; `name` is for a volume that is needed. A volume of an earlier
/// injection is used again (`mountServiceAccountToken`).
pub(crate) fn inject(account: &Value, pod: &mut Value, name: impl FnOnce() -> String) {
    let wanted = pod["spec"]["automountServiceAccountToken"]
        .as_bool()
        .or_else(|| account["automountServiceAccountToken"].as_bool());
    if wanted == Some(false) {
        return;
    }
    let mut volumes = items(&pod["spec"], "volumes").iter().map(|volume| text(volume, "name"));
    let known = volumes.find(|volume| volume.starts_with(VOLUME_PREFIX)).map(str::to_owned);
    let has_volume = known.is_some();
    let name = known.unwrap_or_else(name);
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in pod.get_mut("spec").into_iter().flat_map(|spec| items_mut(spec, list)) {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            if mounts.is_null() {
                *mounts = json!([]);
            }
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
                needed = true;
            }
        }
    }
    if has_volume || !needed {
        return;
    }
    let volume = json!({"name": name, "projected": {"sources": [
        {"serviceAccountToken": {"expirationSeconds": SECONDS, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ], "defaultMode": 0o644}});
    match pod.at_mut(&["spec", "volumes"]) {
        Some(Value::Array(volumes)) => volumes.push(volume),
        _ => pod.set_at(&["spec", "volumes"], json!([volume])),
    }
}

/// Returns why the account does not allow the secrets of a new pod, if it limits them (`limitSecretReferences`).
pub(super) fn forbidden_secret(account: &Value, pod: &Value) -> Option<String> {
    if !limits_secrets(account) {
        return None;
    }
    let (spec, name) = (&pod["spec"], meta::text(account, "name"));
    let secrets = names(account, "secrets");
    let volumes = items(spec, "volumes").iter().filter_map(|volume| present(volume, "secret"));
    let mut mounted = volumes.map(|secret| text(secret, "secretName"));
    if let Some(secret) = mounted.find(|secret| !secrets.contains(secret)) {
        return Some(format!(
            "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference \
             that secret"
        ));
    }
    let lists = [("initContainers", "init container"), ("containers", "container")];
    if let Some(why) = lists.into_iter().find_map(|(list, what)| variable(account, pod, list, what)) {
        return Some(why);
    }
    let own = names(account, "imagePullSecrets");
    let mut pulls = items(spec, "imagePullSecrets").iter().map(|secret| text(secret, "name")).enumerate();
    let (index, secret) = pulls.find(|(_, secret)| !own.contains(secret))?;
    Some(format!(
        "imagePullSecrets[{index}].name=\"{secret}\" is not allowed because service account {name} does not reference \
         that imagePullSecret"
    ))
}

/// Same for ephemeral containers, which are added to a pod later (`limitEphemeralContainerSecretReferences`).
pub(super) fn forbidden_ephemeral_secret(account: &Value, pod: &Value) -> Option<String> {
    if limits_secrets(account) { variable(account, pod, "ephemeralContainers", "ephemeral container") } else { None }
}

/// Whether pods of the account may use its own secrets only. Texts are those of Go's `strconv.ParseBool`.
fn limits_secrets(account: &Value) -> bool {
    matches!(text(&account["metadata"]["annotations"], MOUNTABLE), "1" | "t" | "T" | "TRUE" | "true" | "True")
}

fn names<'a>(account: &'a Value, list: &str) -> Vec<&'a str> {
    items(account, list).iter().map(|secret| text(secret, "name")).collect()
}

/// Returns why a container of this list may not have its variables: one of them is of another secret.
fn variable(account: &Value, pod: &Value, list: &str, what: &str) -> Option<String> {
    let secrets = names(account, "secrets");
    let refused = |secret: &Value| !secrets.contains(&text(secret, "name"));
    let told = |container: &Value, by: String, secret: &Value| {
        format!(
            "{what} {} with {by} referencing secret.secretName=\"{}\" is not allowed because service account {} does \
             not reference that secret",
            text(container, "name"),
            text(secret, "name"),
            meta::text(account, "name")
        )
    };
    items(&pod["spec"], list).iter().find_map(|container| {
        let mut named = items(container, "env").iter().filter_map(|one| {
            let secret = present(&one["valueFrom"], "secretKeyRef").filter(|secret| refused(secret))?;
            Some(told(container, format!("envVar {}", text(one, "name")), secret))
        });
        let mut whole = items(container, "envFrom").iter().filter_map(|one| {
            let secret = present(one, "secretRef").filter(|secret| refused(secret))?;
            Some(told(container, "envFrom".to_owned(), secret))
        });
        named.next().or_else(|| whole.next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_account_that_is_to_come_is_waited_for() {
        let of = |pod: Value| is_of_default(&pod);
        assert!(of(json!({"spec": {}})) && of(json!({"spec": {"serviceAccountName": ""}})));
        assert!(of(json!({"spec": {"serviceAccountName": "default"}})));
        assert!(!of(json!({"spec": {"serviceAccountName": "app"}})));
        assert!(!of(json!({"spec": {}, "metadata": {"annotations": {MIRROR_ANNOTATION: "x"}}})), "it has none");
        assert!(!of(json!({})), "it is refused for another reason");
    }

    #[test]
    fn account_that_limits_secrets_allows_its_own_alone() {
        let account = |limits: &str| {
            json!({"metadata": {"name": "app", "annotations": {MOUNTABLE: limits}},
                "secrets": [{"name": "own"}], "imagePullSecrets": [{"name": "pull"}]})
        };
        let limited = account("true");
        let volume = |secret: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": secret}}]});
        let variable = |list: &str, secret: &str| {
            json!({list: [{"name": "c", "env": [{"name": "E", "value": "plain"},
                {"name": "K", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]}]})
        };
        let whole = |list: &str, secret: &str| {
            let from = json!([{"configMapRef": {"name": "m"}}, {"secretRef": {"name": secret}}]);
            json!({list: [{"name": "c", "envFrom": from}]})
        };
        let pull = |secret: &str| json!({"imagePullSecrets": [{"name": secret}]});
        let why = |account: &Value, spec: Value| {
            let pod = json!({ "spec": spec });
            forbidden_secret(account, &pod).or_else(|| forbidden_ephemeral_secret(account, &pod))
        };
        let rest = "is not allowed because service account app does not reference that";
        for (own, other, told) in [
            (volume("own"), volume("x"), format!("volume with secret.secretName=\"x\" {rest} secret")),
            (
                variable("containers", "own"),
                variable("containers", "x"),
                format!("container c with envVar K referencing secret.secretName=\"x\" {rest} secret"),
            ),
            (
                whole("initContainers", "own"),
                whole("initContainers", "x"),
                format!("init container c with envFrom referencing secret.secretName=\"x\" {rest} secret"),
            ),
            (
                whole("ephemeralContainers", "own"),
                whole("ephemeralContainers", "x"),
                format!("ephemeral container c with envFrom referencing secret.secretName=\"x\" {rest} secret"),
            ),
            (pull("pull"), pull("x"), format!("imagePullSecrets[0].name=\"x\" {rest} imagePullSecret")),
        ] {
            assert_eq!(why(&limited, own), None);
            assert_eq!(why(&account("false"), other.clone()), None, "it limits nothing");
            assert_eq!(why(&json!({"metadata": {"name": "app"}}), other.clone()), None);
            assert_eq!(why(&limited, other), Some(told));
        }
    }
}
