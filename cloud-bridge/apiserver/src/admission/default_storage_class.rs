//! The DefaultStorageClass admission: a claim without a class gets the default one, if there is one (K8s
//! plugin/pkg/admission/storage/storageclass/setdefault).

use std::cmp::Reverse;

use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::Value;

use crate::kinds::storage_class::{STORAGE, is_default};
use crate::resource::status::ApiResult;
use crate::storage::Store;
use apimachinery::json::present;
use apimachinery::meta;

pub(super) fn apply(store: &Store, claim: &mut Value) -> ApiResult<()> {
    if !needs(claim) {
        return Ok(());
    }
    let classes = store.list(STORAGE, None, None, None)?;
    if let Some(name) = default(classes.iter().map(|class| class.value())) {
        claim.set_at(&["spec", "storageClassName"], name.into());
    }
    Ok(())
}

/// An empty name is one, too: it asks for a volume without a class.
fn needs(claim: &Value) -> bool {
    const OLD: &str = "volume.beta.kubernetes.io/storage-class";
    claim["spec"].is_object()
        && present(&claim["spec"], "storageClassName").is_none()
        && present(&claim["metadata"]["annotations"], OLD).is_none()
}

/// The newest default class; of those of one second the first by name.
fn default<'a>(classes: impl Iterator<Item = &'a Value>) -> Option<&'a str> {
    let made = |class: &Value| meta::text(class, "creationTimestamp").parse::<Timestamp>().ok();
    let defaults = classes.filter(|class| is_default(class));
    defaults.map(|class| (Reverse(made(class)), meta::text(class, "name"))).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_default_counts() {
        let class = |name: &str, day: &str, default: bool| {
            json!({"metadata": {"name": name, "creationTimestamp": format!("2026-01-{day}T00:00:00Z"),
                "annotations": {"storageclass.kubernetes.io/is-default-class": default.to_string()}}})
        };
        let of = |classes: &[Value]| default(classes.iter()).map(str::to_owned);
        let old = class("a", "01", true);
        assert_eq!(of(&[old.clone(), class("c", "02", true), class("b", "02", true)]).as_deref(), Some("b"));
        assert_eq!(of(&[old.clone(), class("c", "02", false)]).as_deref(), Some("a"));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_claim_that_names_a_class_keeps_it() {
        assert!(needs(&json!({"spec": {}})));
        assert!(!needs(&json!({"spec": {"storageClassName": ""}})));
        let old = json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "x"}}, "spec": {}});
        assert!(!needs(&old));
    }
}
