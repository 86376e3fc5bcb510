//! Audiences of tokens that the CSI drivers of a pod's volumes ask for.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::auth::node::references::{Kind, of_pod};
use crate::resource::status::ApiResult;
use crate::storage::Store;
use apimachinery::json::{items, text};
use apimachinery::key::ObjectKey;

/// Whether a driver of an inline volume, or of the volume of a claim, asks for tokens for this audience (K8s
/// plugin/pkg/admission/noderestriction, `podReferencesAudience`).
pub(super) fn asks(store: &Store, pod: &Value, audience: &str) -> ApiResult<bool> {
    let namespace = text(&pod["metadata"], "namespace");
    let cluster = |name: &str| ObjectKey { namespace: String::new(), name: name.to_owned() };
    let mut claims = Vec::new();
    of_pod(pod, &mut |kind, name| {
        if kind == Kind::Claim {
            claims.push(ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() });
        }
    });
    let inline = items(&pod["spec"], "volumes").iter().map(|volume| text(&volume["csi"], "driver").to_owned());
    let mut drivers: BTreeSet<String> = inline.collect();
    for claim in claims {
        let Some(claim) = store.get("persistentvolumeclaims", &claim)? else { continue };
        let volume = cluster(text(&claim.value()["spec"], "volumeName"));
        if let Some(volume) = store.get("persistentvolumes", &volume)? {
            drivers.insert(text(&volume.value()["spec"]["csi"], "driver").to_owned());
        }
    }
    for driver in drivers {
        let Some(driver) = store.get("csidrivers.storage.k8s.io", &cluster(&driver))? else { continue };
        if items(&driver.value()["spec"], "tokenRequests").iter().any(|asked| text(asked, "audience") == audience) {
            return Ok(true);
        }
    }
    Ok(false)
}
