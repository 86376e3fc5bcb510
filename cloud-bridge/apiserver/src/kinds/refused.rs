//! Kinds of Kubernetes without a controller here. Clients can list them, and find no objects; creating one is refused
//! with the reason, so that a user does not wait for an effect in vain.

use std::sync::Arc;

use super::bare::Bare;
use crate::resource::strategy::Strategy;
use crate::resource::{Hooks, Resource};

/// Supported verbs.
const VERBS: &[&str] = &["get", "list", "watch"];

/// Why none of a kind may be created.
struct Refused(&'static str);

impl Strategy for Refused {
    fn refusal(&self) -> Option<&'static str> {
        Some(self.0)
    }
}

static ADMISSION: Refused = Refused("this API asks no webhooks and judges by no admission policies");
static AGGREGATION: Refused = Refused("this API passes no requests on to others");
static CSI: Refused = Refused("the nodes of this site have no CSI drivers");

/// Group, kind, plural, short names, whether it is in namespaces, and why not.
type Row = (&'static str, &'static str, &'static str, &'static [&'static str], bool, &'static Refused);

const ROWS: &[Row] = &[
    (REGISTRATION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", &[], false, &ADMISSION),
    (REGISTRATION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", &[], false, &ADMISSION),
    (REGISTRATION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", &[], false, &ADMISSION),
    (REGISTRATION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", &[], false, &ADMISSION),
    (REGISTRATION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", &[], false, &ADMISSION),
    (REGISTRATION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", &[], false, &ADMISSION),
    ("apiregistration.k8s.io", "APIService", "apiservices", &[], false, &AGGREGATION),
    (STORAGE, "CSIDriver", "csidrivers", &[], false, &CSI),
    (STORAGE, "CSINode", "csinodes", &[], false, &CSI),
    (STORAGE, "CSIStorageCapacity", "csistoragecapacities", &[], true, &CSI),
    (STORAGE, "VolumeAttachment", "volumeattachments", &[], false, &CSI),
];
const REGISTRATION: &str = "admissionregistration.k8s.io";
const STORAGE: &str = "storage.k8s.io";

/// The resources, in discovery order.
pub(super) fn resources() -> impl Iterator<Item = Arc<Resource>> {
    ROWS.iter().map(|(group, kind, plural, short_names, namespaced, refused)| {
        Bare {
            group,
            version: "v1",
            kind,
            plural,
            singular: kind.to_lowercase(),
            short_names,
            namespaced: *namespaced,
            verbs: VERBS,
            hooks: Hooks::Builtin(*refused),
        }
        .resource()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_refused_for_a_reason() {
        let all: Vec<Arc<Resource>> = resources().collect();
        assert!(all.iter().all(|resource| resource.strategy().refusal().is_some_and(|why| why.len() > 20)));
        let csi = all.iter().find(|resource| resource.plural == "csistoragecapacities").unwrap();
        assert!(csi.namespaced && csi.singular == "csistoragecapacity");
    }
}
