//! Custom resources whose definition, an administrator's, makes them expensive.

use serde_json::{Value, json};

use super::{Tenant, path};
use crate::siege::Attack;

const GROUP: &str = "siege.example";
/// In the worst case all of its states are active at each letter of a text.
const PATTERN: &str = "^[ab]*a[ab]{900}c$";
/// Length of a text in bytes. The API refuses longer ones for this pattern unread.
const TEXT: usize = 30_000;

/// The definition, and the right of editors to write its objects.
pub(super) fn definition() -> [Value; 2] {
    let text = json!({"type": "string", "pattern": PATTERN});
    let schema = json!({"type": "object", "properties": {"text": text}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("texts.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": "texts", "kind": "Text"}, "versions": [version]}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "edit-texts", "labels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}},
        "rules": [{"apiGroups": [GROUP], "resources": ["texts"], "verbs": ["*"]}]});
    [definition, role]
}

pub(super) fn attacks(tenant: &Tenant) -> Vec<Attack<'_>> {
    vec![tenant.repeated("texts of a heavy pattern", |asker, random| {
        let text: String = (0..TEXT).map(|_| if random.below(2) == 0 { 'a' } else { 'b' }).collect();
        let version = format!("{GROUP}/v1");
        let body = json!({"apiVersion": version, "kind": "Text", "metadata": {"name": "t"}, "text": text});
        asker.post(&path(&format!("{version}/texts")), &body)
    })]
}
