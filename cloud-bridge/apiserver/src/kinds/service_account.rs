//! ServiceAccounts.

use k8s_openapi::api::core::v1;

use super::kind::{Kind, PLAIN, Sub};
use crate::codec::decode;
use crate::patch::merge_keys::{META, Type, by};
use crate::resource::Serves;
use crate::resource::rules::Rules;

pub(crate) static KIND: Kind = Kind {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    namespaced: true,
    check: Some(decode::check::<v1::ServiceAccount>),
    rules: Rules { return_deleted_object: true, ..Rules::BUILT_IN },
    warnings: |account| {
        const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
        let why = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        let set = account["metadata"]["annotations"].get(MOUNTABLE).is_some();
        set.then(|| format!("metadata.annotations[{MOUNTABLE}]: {why}")).into_iter().collect()
    },
    subresources: &[Sub::other("token", ("authentication.k8s.io", "TokenRequest"), &["create"], Serves::Token)],
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, by("secrets", &["name"])] };
