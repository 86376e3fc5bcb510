//! The reviews, as clients find them. They are answered in `registry/reviews`, and nothing of them is stored.

use std::sync::Arc;

use super::bare::Bare;
use crate::resource::{Hooks, Resource, strategy};

const IDENTITY: &str = "authentication.k8s.io";
const PERMISSION: &str = "authorization.k8s.io";
/// Group, kind, plural, and whether it is asked in a namespace.
const ROWS: &[(&str, &str, &str, bool)] = &[
    (IDENTITY, "SelfSubjectReview", "selfsubjectreviews", false),
    (IDENTITY, "TokenReview", "tokenreviews", false),
    (PERMISSION, "LocalSubjectAccessReview", "localsubjectaccessreviews", true),
    (PERMISSION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", false),
    (PERMISSION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", false),
    (PERMISSION, "SubjectAccessReview", "subjectaccessreviews", false),
];

/// The resources, in discovery order.
pub(super) fn resources() -> impl Iterator<Item = Arc<Resource>> {
    ROWS.iter().map(|(group, kind, plural, namespaced)| {
        Bare {
            group,
            version: "v1",
            kind,
            plural,
            singular: kind.to_lowercase(),
            short_names: &[],
            namespaced: *namespaced,
            verbs: &["create"],
            hooks: Hooks::Builtin(&strategy::Plain),
        }
        .resource()
    })
}
