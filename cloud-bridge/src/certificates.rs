//! Signs approved CertificateSigningRequests for clients of the embedded API (K8s pkg/controller/certificates/signer),
//! and removes expired requests (cleaner). Nodes get their certificates when they join, not here.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::pki::authority::Authority;
use apimachinery::pace::{in_slices, sleep_until};
use apimachinery::well_known::PAGE;

/// Name of this signer.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Validity of a certificate, unless a shorter one is requested.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Allowed usages of its certificates.
const USAGES: [&str; 3] = ["client auth", "digital signature", "key encipherment"];

/// Time after which a decided request is deleted, and an undecided one.
const DECIDED: Duration = Duration::from_secs(3600);
const PENDING: Duration = Duration::from_secs(24 * 3600);

/// Runs until dropped.
pub async fn run(client: Client, authority: Arc<Authority>) {
    let api: Api<CertificateSigningRequest> = Api::all(client);
    let mut requests =
        pin!(in_slices(watcher(api.clone(), watcher::Config::default().page_size(PAGE)).default_backoff()));
    // Deadline of each request, and its uid. By the monotonic clock: requests from before the start get the full time
    // again.
    let mut ends: BTreeMap<String, (Instant, String)> = BTreeMap::new();
    loop {
        let next = ends.values().map(|(at, _)| *at).min();
        tokio::select! {
            Some(event) = requests.next() => match event {
                Ok(Event::Apply(request) | Event::InitApply(request)) => {
                    let stay = if is_pending(&request) { PENDING } else { DECIDED };
                    if let Some(end) = Instant::now().checked_add(stay) {
                        ends.insert(request.name_any(), (end, request.uid().unwrap_or_default()));
                    }
                    answer(&api, &authority, &request).await;
                }
                Ok(Event::Delete(request)) => drop(ends.remove(&request.name_any())),
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => log::warn!("watching certificate requests: {error}"),
            },
            () = sleep_until(next) => remove(&api, &mut ends).await,
        }
    }
}

/// Deletes expired requests. One that cannot be deleted gets its time again at the next start.
async fn remove(api: &Api<CertificateSigningRequest>, ends: &mut BTreeMap<String, (Instant, String)>) {
    let now = Instant::now();
    let over: Vec<String> = ends.iter().filter(|(_, (at, _))| *at <= now).map(|(name, _)| name.clone()).collect();
    for name in over {
        let Some((_, uid)) = ends.remove(&name) else { continue };
        let same = Preconditions { uid: Some(uid), resource_version: None };
        if let Err(error) = api.delete(&name, &DeleteParams::default().preconditions(same)).await {
            log::info!("certificate request {name} stays: {error}");
        }
    }
}

fn has(request: &CertificateSigningRequest, kind: &str) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == kind)
}

/// Whether it is undecided.
fn is_pending(request: &CertificateSigningRequest) -> bool {
    !["Approved", "Denied", "Failed"].iter().any(|kind| has(request, kind))
}

/// Whether it is approved but not yet answered.
fn is_due(request: &CertificateSigningRequest) -> bool {
    let signed = request.status.as_ref().is_some_and(|status| status.certificate.is_some());
    let decided = has(request, "Approved") && !has(request, "Denied") && !has(request, "Failed");
    request.spec.signer_name == SIGNER && decided && !signed
}

async fn answer(api: &Api<CertificateSigningRequest>, authority: &Authority, request: &CertificateSigningRequest) {
    if !is_due(request) {
        return;
    }
    let name = request.name_any();
    let version = request.resource_version();
    let status = match sign(authority, request) {
        Ok(certificate) => json!({"certificate": ByteString(certificate.into_bytes())}),
        Err(why) => {
            let mut conditions = request.status.clone().and_then(|status| status.conditions).unwrap_or_default();
            conditions.push(k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition {
                type_: "Failed".to_owned(),
                status: "True".to_owned(),
                reason: Some("SignerValidationFailure".to_owned()),
                message: Some(why),
                ..Default::default()
            });
            json!({ "conditions": conditions })
        }
    };
    // Another client may have written meanwhile; the watch shows that.
    let patch = json!({"metadata": {"uid": request.uid(), "resourceVersion": version}, "status": status});
    match api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => {
            log::info!("certificate request {name} of {} is answered", request.spec.username.as_deref().unwrap_or("?"))
        }
        Err(error) => log::warn!("certificate request {name}: {error}"),
    }
}

/// Returns the certificate as PEM, or the reason of a refusal.
fn sign(authority: &Authority, request: &CertificateSigningRequest) -> Result<String, String> {
    let spec = &request.spec;
    let usages = spec.usages.clone().unwrap_or_default();
    if let Some(usage) = usages.iter().find(|usage| !USAGES.contains(&usage.as_str())) {
        return Err(format!("usage {usage:?} is not one of this signer: {}", USAGES.join(", ")));
    }
    if !usages.iter().any(|usage| usage == "client auth") {
        return Err("usage \"client auth\" is required".to_owned());
    }
    let asked = spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let life = asked.map_or(LIFE, |asked| asked.min(LIFE));
    authority.person(&spec.request.0, life).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(conditions: &serde_json::Value, certificate: Option<&str>) -> CertificateSigningRequest {
        let spec = json!({"request": "", "signerName": SIGNER, "usages": ["client auth"]});
        let status = json!({"conditions": conditions, "certificate": certificate});
        serde_json::from_value(json!({"metadata": {"name": "r"}, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn only_what_was_approved_is_answered_and_once() {
        let of = |kinds: &[&str]| {
            json!(kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect::<Vec<_>>())
        };
        assert!(is_due(&request(&of(&["Approved"]), None)));
        for (kinds, certificate) in
            [(&[][..], None), (&["Denied"], None), (&["Approved", "Failed"], None), (&["Approved"], Some("AA=="))]
        {
            assert!(!is_due(&request(&of(kinds), certificate)), "{kinds:?}");
            assert_eq!(is_pending(&request(&of(kinds), certificate)), kinds.is_empty());
        }
        let mut foreign = request(&of(&["Approved"]), None);
        foreign.spec.signer_name = "example.com/x".into();
        assert!(!is_due(&foreign));
    }

    #[test]
    fn usages_that_are_not_the_signers_are_refused() {
        let authority = Authority::create("test").unwrap();
        let mut asked = request(&json!([]), None);
        asked.spec.usages = Some(vec!["server auth".into()]);
        assert!(sign(&authority, &asked).unwrap_err().contains("server auth"));
        asked.spec.usages = Some(vec!["digital signature".into()]);
        assert!(sign(&authority, &asked).unwrap_err().contains("client auth"));
        asked.spec.usages = Some(vec!["client auth".into()]);
        assert!(sign(&authority, &asked).is_err(), "no request");
    }
}
