//! Service account tokens for the pods of a node, requested in the node's name, so that the API server's own rules for
//! nodes (node authorizer, NodeRestriction) apply after the checks here.
//!
//! A node names only the pod. Its service account and the allowed audiences come from the pod's spec in the API, and
//! from the CSI drivers of its volumes, never from the node. The spec that the bridge has sent is good enough, because
//! these fields never change (K8s pkg/kubelet/token/token_manager.go reads them from its own memory, too); the API
//! checks that the pod still exists.

use std::sync::Arc;

use edge_protocol::message::{ObjectKey, TokenAnswer, TokenRequest};
use edge_protocol::state::Body;
use serde_json::{Value, json};

use super::pod_references::{references, volume_references};
use super::requests::{Requests, is_path_segment};
use super::told::kinds::Kind;
use apimachinery::well_known::MIRROR_ANNOTATION;
use sampan_log::printable::printable;

/// Default of `expirationSeconds` of a volume (`DefaultTokenExpiration` of the API's defaulting).
const DEFAULT_SECONDS: i64 = 3600;

/// Returns an object that the node has.
type Held<'a> = &'a (dyn Fn(&ObjectKey) -> Option<Arc<Body>> + Sync);

/// Requests the token from the API; every outcome is an answer. `sent`: the pod as the node has it.
pub(super) async fn answer(
    requests: &Requests,
    node: &str,
    sent: Option<&Body>,
    held: Held<'_>,
    request: &TokenRequest,
) -> TokenAnswer {
    match ask(requests, node, sent, held, request).await {
        Ok(answer) => answer,
        Err(reason) => {
            let pod = printable(format_args!("{}/{}", request.namespace, request.pod)).to_string();
            log::warn!("node {node}: token for pod {pod}: {}", printable(&reason));
            TokenAnswer::Refused { reason }
        }
    }
}

async fn ask(
    requests: &Requests,
    node: &str,
    sent: Option<&Body>,
    held: Held<'_>,
    request: &TokenRequest,
) -> Result<TokenAnswer, String> {
    let TokenRequest { namespace, pod: name, uid, .. } = request;
    if !is_path_segment(namespace) || !is_path_segment(name) {
        return Err("namespace and pod must be names".to_owned());
    }
    let failed = |error: kube::Error| format!("failed to fetch token: {error}");
    let pod = match sent.and_then(read) {
        Some(pod) => pod,
        None => requests.get(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await.map_err(failed)?,
    };
    let by_driver = || is_of_driver(&pod, request, |key| held(key).as_deref().and_then(read));
    let account = permitted(&pod, node, uid, &request.audience, request.expiration_seconds, by_driver)?;
    let audiences: Vec<&str> = Some(request.audience.as_str()).filter(|a| !a.is_empty()).into_iter().collect();
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": audiences,
            "expirationSeconds": request.expiration_seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid},
        },
    });
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let review: Value = requests.post(&path, &body).await.map_err(failed)?;
    issued(&review, request.expiration_seconds)
}

fn read(sent: &Body) -> Option<Value> {
    serde_json::from_str(sent.text()).ok()
}

/// Whether the CSI driver of a volume asks for such a token (K8s plugin/pkg/admission/noderestriction,
/// `podReferencesAudience`). `held`: objects that the node has.
fn is_of_driver(pod: &Value, request: &TokenRequest, held: impl Fn(&ObjectKey) -> Option<Value>) -> bool {
    let TokenRequest { namespace, pod: name, audience, expiration_seconds, .. } = request;
    let asks = |driver: &ObjectKey| {
        let object = held(driver).unwrap_or_default();
        object["spec"]["tokenRequests"].as_array().into_iter().flatten().any(|wanted| {
            wanted["audience"].as_str().unwrap_or_default() == audience
                && wanted["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS) == *expiration_seconds
        })
    };
    references(namespace, name, &pod["spec"]).iter().any(|key| {
        if Kind::CsiDriver.is(key) {
            return asks(key);
        }
        let of_claim = || volume_references(key, &held(key).unwrap_or_default());
        Kind::Claim.is(key) && of_claim().iter().any(|name| Kind::CsiDriver.is(name) && asks(name))
    })
}

/// The service account of a pod, if the pod belongs to this node and may request such a token: a volume asks for it, or
/// `by_driver` says that a CSI driver does.
fn permitted(
    pod: &Value,
    node: &str,
    uid: &str,
    audience: &str,
    seconds: i64,
    by_driver: impl FnOnce() -> bool,
) -> Result<String, String> {
    if pod["metadata"]["uid"] != uid {
        return Err("the pod of this name is another one by now".to_owned());
    }
    if pod["spec"]["nodeName"] != node {
        return Err(format!("the pod is not bound to node {node}"));
    }
    if !pod["metadata"]["annotations"][MIRROR_ANNOTATION].is_null() {
        return Err("a static pod has no service account".to_owned());
    }
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let sources = volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    let wanted = sources.map(|source| &source["serviceAccountToken"]).filter(|token| token.is_object()).any(|token| {
        token["audience"].as_str().unwrap_or_default() == audience
            && token["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS) == seconds
    });
    if !wanted && !by_driver() {
        return Err(format!("no volume of the pod asks for a token for audience {audience:?} and {seconds} s"));
    }
    let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default");
    if is_path_segment(account) { Ok(account.to_owned()) } else { Err(format!("{account:?} is no name")) }
}

fn issued(review: &Value, asked: i64) -> Result<TokenAnswer, String> {
    let status = &review["status"];
    let (Some(token), Some(expires)) = (status["token"].as_str(), status["expirationTimestamp"].as_str()) else {
        return Err("failed to fetch token: the API's answer has none".to_owned());
    };
    let bad = |_| format!("failed to fetch token: expirationTimestamp {expires:?} is no time");
    let end: jiff::Timestamp = expires.parse().map_err(bad)?;
    let seconds = review["spec"]["expirationSeconds"].as_i64().unwrap_or(asked).clamp(1, i64::from(u32::MAX));
    let issued = end - std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(1));
    Ok(TokenAnswer::Issued { token: token.to_owned(), issued: issued.to_string(), expires: expires.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::slim::SlimPod;

    fn pod() -> Value {
        json!({
            "metadata": {"uid": "u-1"},
            "spec": {"nodeName": "edge-1", "serviceAccountName": "robot", "volumes": [
                {"name": "x", "emptyDir": {}},
                {"name": "t", "projected": {"sources": [
                    {"configMap": {"name": "c"}},
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                    {"serviceAccountToken": {"path": "vault", "audience": "vault"}}]}}]}
        })
    }

    #[test]
    fn only_what_a_pod_of_this_node_asks_for_is_asked_for() {
        let robot = Ok("robot".to_owned());
        assert_eq!(permitted(&pod(), "edge-1", "u-1", "", 3607, || false), robot);
        assert_eq!(permitted(&pod(), "edge-1", "u-1", "vault", 3600, || false), robot);
        for (node, uid, audience, seconds) in [
            ("edge-2", "u-1", "", 3607),
            ("edge-1", "u-2", "", 3607),
            ("edge-1", "u-1", "bank", 3607),
            ("edge-1", "u-1", "", 86_400),
        ] {
            assert!(
                permitted(&pod(), node, uid, audience, seconds, || false).is_err(),
                "{node} {uid} {audience} {seconds}"
            );
        }
        let mut mirror = pod();
        mirror["metadata"]["annotations"] = json!({MIRROR_ANNOTATION: "f-1"});
        assert!(permitted(&mirror, "edge-1", "u-1", "", 3607, || false).is_err());
        let mut odd = pod();
        odd["spec"]["serviceAccountName"] = "a/../b".into();
        assert!(permitted(&odd, "edge-1", "u-1", "", 3607, || false).is_err());
    }

    #[test]
    fn pod_as_the_node_has_it_tells_what_it_asks_for() {
        let mut pod = pod();
        pod["metadata"]["name"] = "p".into();
        let bound = serde_json::from_value::<SlimPod>(pod).unwrap().into_bound().unwrap();
        let sent = read(&bound.object.text()).unwrap();
        assert_eq!(permitted(&sent, "edge-1", "u-1", "vault", 3600, || false), Ok("robot".to_owned()));
        assert!(permitted(&sent, "edge-1", "u-2", "vault", 3600, || false).is_err(), "a pod of that name before");
        assert!(permitted(&sent, "edge-1", "u-1", "bank", 3600, || false).is_err());
    }

    #[test]
    fn driver_of_a_volume_asks_for_tokens_of_the_pod() {
        let driver =
            json!({"spec": {"tokenRequests": [{"audience": "vault"}, {"audience": "", "expirationSeconds": 900}]}});
        let spec = json!({"csi": {"driver": "d"}, "claimRef": {"namespace": "ns", "name": "data"}});
        let claim = json!({"volume": {"spec": spec}});
        let held = |key: &ObjectKey| match (key.kind.as_str(), key.name.as_str()) {
            ("CSIDriver", "d") => Some(driver.clone()),
            ("PersistentVolumeClaim", "data") => Some(claim.clone()),
            _ => None,
        };
        let asks = |volume: Value, audience: &str, expiration_seconds: i64| {
            let pod = json!({"spec": {"volumes": [volume]}});
            let (namespace, name, uid, audience) = ("ns".into(), "web".into(), "u-1".into(), audience.into());
            is_of_driver(&pod, &TokenRequest { namespace, pod: name, uid, audience, expiration_seconds }, held)
        };
        let inline = || json!({"csi": {"driver": "d"}});
        let claimed = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        assert!(asks(inline(), "vault", 3600) && asks(inline(), "", 900) && asks(claimed("data"), "vault", 3600));
        assert!(!asks(inline(), "vault", 900) && !asks(inline(), "bank", 3600));
        assert!(!asks(claimed("other"), "vault", 3600) && !asks(json!({"csi": {"driver": "e"}}), "vault", 3600));
        assert!(!asks(json!({"emptyDir": {}}), "vault", 3600));
    }

    #[test]
    fn life_is_counted_back_from_its_end() {
        let review = json!({"spec": {"expirationSeconds": 600},
            "status": {"token": "t", "expirationTimestamp": "2026-01-01T01:00:00Z"}});
        let Ok(TokenAnswer::Issued { issued, .. }) = issued(&review, 600) else { panic!("refused") };
        assert_eq!(issued, "2026-01-01T00:50:00Z");
        assert!(super::issued(&json!({"status": {}}), 600).is_err());
    }
}
