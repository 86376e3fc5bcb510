//! Credentials of nodes to pull the images of a job: the content of a Secret, read in the bridge's own name and kept as
//! long as the job.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::order;
use super::view::Job;
use crate::bridge::requests::{Requests, is_path_segment};
use crate::pki::NAMESPACE;

const TYPE: &str = "kubernetes.io/dockerconfigjson";
const KEY: &str = ".dockerconfigjson";
/// Interval of reading a Secret again that was not available.
const AGAIN: Duration = Duration::from_secs(5);
/// Maximum size in bytes: nodes keep it, and so does each order.
const LONGEST: usize = 64 << 10;

#[derive(Deserialize)]
struct Secret {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    data: std::collections::BTreeMap<String, String>,
}

/// Reason why the Secret is not available.
#[derive(Clone, Debug)]
pub(super) enum Problem {
    /// A retry may help.
    Passing(String),
    /// A user has to correct it.
    Lasting(String),
}

/// The Secret of one job, once it was read.
#[derive(Default)]
pub(super) struct Kept(Option<(Instant, Result<Option<String>, Problem>)>);

impl Kept {
    /// The content of the Secret that the job names, if it names one.
    pub(super) async fn get(
        &mut self,
        requests: &Requests,
        job: &Job,
        is_master: bool,
    ) -> Result<Option<&str>, Problem> {
        let stale = |(at, secret): &(Instant, Result<_, _>)| secret.is_err() && at.elapsed() > AGAIN;
        if self.0.as_ref().is_none_or(stale) {
            let read = read(requests, job, is_master).await;
            if let Err(problem) = &read {
                log::warn!("{} {}: {problem:?}", job.kind.name(), job.name);
            }
            self.0 = Some((Instant::now(), read));
        }
        match &self.0 {
            Some((_, Ok(secret))) => Ok(secret.as_deref()),
            Some((_, Err(problem))) => Err(problem.clone()),
            None => Ok(None),
        }
    }
}

/// Reads the Secret that a job names, if it names one. `is_master`: the client may read every Secret, so the rights of
/// jobs must be checked separately.
async fn read(requests: &Requests, job: &Job, is_master: bool) -> Result<Option<String>, Problem> {
    let Some((namespace, name)) = order::secret(job).map_err(Problem::Lasting)? else { return Ok(None) };
    let about = |what: &str| Problem::Lasting(format!("Secret {namespace}/{name} {what}"));
    if !is_path_segment(namespace) || !is_path_segment(name) {
        return Err(about("is no name of one"));
    }
    let refused = || about("may not be read by the bridge: it needs the right to get it (docs/fleet.md)");
    if is_master && namespace != NAMESPACE && !account_may_read(requests, namespace, name).await? {
        return Err(refused());
    }
    match requests.get::<Secret>(&format!("/api/v1/namespaces/{namespace}/secrets/{name}")).await {
        // The author of a job must not learn which other Secrets exist: this exposes no other type.
        Ok(secret) if secret.kind != TYPE => Err(about(&format!("is not of type {TYPE}"))),
        Ok(secret) => {
            content(&secret).map(Some).ok_or_else(|| about(&format!("has no {KEY} of at most {LONGEST} bytes")))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Err(about("is not there")),
        Err(kube::Error::Api(status)) if status.code == 403 => Err(refused()),
        Err(error) => Err(Problem::Passing(format!("Secret {namespace}/{name}: {error}"))),
    }
}

/// Whether the service account of bridges on a cluster may get a Secret.
async fn account_may_read(requests: &Requests, namespace: &str, name: &str) -> Result<bool, Problem> {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": format!("system:serviceaccount:{NAMESPACE}:cloud-bridge"),
        "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{NAMESPACE}"), "system:authenticated"],
        "resourceAttributes": {"verb": "get", "version": "v1", "resource": "secrets", "namespace": namespace, "name": name}}});
    let answer = requests.post::<Value>("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await;
    let answer = answer.map_err(|error| Problem::Passing(format!("asking who may read Secrets: {error}")))?;
    Ok(answer["status"]["allowed"] == true)
}

fn content(secret: &Secret) -> Option<String> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    let text = secret.data.get(KEY).filter(|text| text.len() <= LONGEST * 4 / 3 + 4)?;
    String::from_utf8(STANDARD.decode(text).ok()?).ok()
}
