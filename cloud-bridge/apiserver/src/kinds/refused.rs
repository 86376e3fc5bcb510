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

/// Group, kind, plural, and why not.
type Row = (&'static str, &'static str, &'static str, &'static Refused);

const ROWS: &[Row] = &[
    (REGISTRATION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", &ADMISSION),
    (REGISTRATION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", &ADMISSION),
    (REGISTRATION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", &ADMISSION),
    (REGISTRATION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", &ADMISSION),
    (REGISTRATION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", &ADMISSION),
    (REGISTRATION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", &ADMISSION),
    ("apiregistration.k8s.io", "APIService", "apiservices", &AGGREGATION),
];
const REGISTRATION: &str = "admissionregistration.k8s.io";

/// The resources, in discovery order.
pub(super) fn resources() -> impl Iterator<Item = Arc<Resource>> {
    ROWS.iter().map(|(group, kind, plural, refused)| {
        Bare {
            group,
            version: "v1",
            kind,
            plural,
            singular: kind.to_lowercase(),
            short_names: &[],
            namespaced: false,
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
        let services = all.iter().find(|resource| resource.plural == "apiservices").unwrap();
        assert_eq!(services.singular, "apiservice");
    }
}
