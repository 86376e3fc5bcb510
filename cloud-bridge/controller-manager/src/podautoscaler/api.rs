//! Reads and writes of the API: the scale of a target, its pods and their metrics. No decisions.

use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, HorizontalPodAutoscaler};
use kube::Client;
use serde_json::{Value, json};

use super::decide::wants_metrics;
use super::pods::Pod;
use super::seen::{Scale, Seen};
use apimachinery::json::{items, text};
use sampan_json::SetField;

/// Timeout of the API. Metrics of an offline node take ten seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of attempts to write a scale after conflicts (client-go `retry.DefaultRetry`).
const WRITES: usize = 5;

struct Failure {
    code: u16,
    message: String,
}

async fn call(client: &Client, method: Method, url: &str, body: Option<&Value>) -> Result<Value, Failure> {
    let silent = |message: String| Failure { code: 0, message };
    let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = Request::builder().method(method).uri(url).header("content-type", "application/json");
    let request = request.body(bytes).map_err(|error| silent(error.to_string()))?;
    match tokio::time::timeout(PATIENCE, client.request::<Value>(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(Failure { code: status.code, message: status.message.clone() }),
        Ok(Err(error)) => Err(silent(error.to_string())),
        Err(_) => Err(silent(format!("the API did not answer within {} s", PATIENCE.as_secs()))),
    }
}

async fn read(client: &Client, url: &str) -> Result<Value, Failure> {
    call(client, Method::GET, url, None).await
}

/// A part of a path or of a query: names of strangers may have anything in them.
fn part(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Reads what is needed to decide about the target of an autoscaler.
pub(crate) async fn look(client: &Client, autoscaler: &HorizontalPodAutoscaler) -> Seen {
    let namespace = autoscaler.metadata.namespace.as_deref().unwrap_or_default();
    let target = &autoscaler.spec.scale_target_ref;
    let mut seen = Seen::new(namespace, scale_of(client, namespace, target).await);
    let wanted = seen.scale.as_ref().ok().and_then(|scale| wants_metrics(autoscaler, scale)).map(part);
    let Some(selector) = wanted else { return seen };
    let namespace = part(namespace);
    let (pods, metrics) = (
        format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}"),
        format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={selector}"),
    );
    let (pods, metrics) = tokio::join!(read(client, &pods), read(client, &metrics));
    seen.pods =
        pods.map(|list| items(&list, "items").iter().cloned().map(Pod::new).collect()).map_err(|why| why.message);
    seen.metrics = metrics
        .map(|list| items(&list, "items").to_vec())
        .map_err(|why| format!("unable to fetch metrics from resource metrics API: {}", why.message));
    seen
}

/// The `scale` of an object of any kind.
pub(crate) async fn scale_of(
    client: &Client,
    namespace: &str,
    target: &CrossVersionObjectReference,
) -> Result<Scale, String> {
    let version = target.api_version.as_deref().unwrap_or_default();
    let group = match version.split('/').collect::<Vec<_>>()[..] {
        [group, _] => group,
        [_] => "",
        _ => return Err(format!("unexpected GroupVersion string: {version}")),
    };
    let mut first = None;
    for (root, plural) in resources(client, group, &target.kind).await? {
        let (namespace, name) = (part(namespace), part(&target.name));
        let url = format!("{root}/namespaces/{namespace}/{}/{name}/scale", part(&plural));
        match read(client, &url).await {
            Ok(object) => return Ok(Scale { url, object }),
            Err(why) => drop(first.get_or_insert(why.message)),
        }
    }
    Err(first.unwrap_or_else(|| format!("no matches for kind {:?} in group {group:?}", target.kind)))
}

/// Where objects of a kind may be, the preferred version first: the root of the version, and the plural.
async fn resources(client: &Client, group: &str, kind: &str) -> Result<Vec<(String, String)>, String> {
    let roots: Vec<String> = if group.is_empty() {
        vec!["/api/v1".to_owned()]
    } else {
        match read(client, &format!("/apis/{}", part(group))).await {
            Ok(found) => {
                let versions = items(&found, "versions").iter().map(|one| text(one, "version").to_owned());
                let preferred = text(&found["preferredVersion"], "version").to_owned();
                let mut all: Vec<String> = versions.collect();
                all.sort_by_key(|version| *version != preferred);
                all.iter().map(|version| format!("/apis/{}/{}", part(group), part(version))).collect()
            }
            Err(why) if why.code == 404 => Vec::new(),
            Err(why) => return Err(why.message),
        }
    };
    let mut found = Vec::new();
    for root in roots {
        let list = match read(client, &root).await {
            Ok(list) => list,
            Err(why) if why.code == 404 => continue,
            Err(why) => return Err(why.message),
        };
        let mut of_kind = items(&list, "resources").iter().filter(|one| text(one, "kind") == kind);
        let plural = of_kind.find(|one| !text(one, "name").contains('/')).map(|one| text(one, "name").to_owned());
        found.extend(plural.map(|plural| (root, plural)));
    }
    Ok(found)
}

/// Sets the replicas of a target.
pub(crate) async fn rescale(client: &Client, mut scale: Scale, replicas: i32) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..WRITES {
        scale.object.set_at(&["spec", "replicas"], json!(replicas));
        match call(client, Method::PUT, &scale.url, Some(&scale.object)).await {
            Ok(_) => return Ok(()),
            Err(why) if why.code == 409 => last = why.message,
            Err(why) => return Err(why.message),
        }
        if let Ok(newer) = read(client, &scale.url).await {
            scale.object = newer;
        }
    }
    Err(last)
}
