//! Columns of roles and bindings.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Spec, Table, age, name};
use apimachinery::json::{items, text};

const CREATED: Spec = ("Created At", "date", 0, "When the server created the object.");
const REF: Spec = ("Role", "string", 0, "The role that the subjects get.");

/// Roles have no printer of their own in Kubernetes: their columns are those of any object.
pub(super) const ROLE: Table<2> =
    Table { columns: [NAME, CREATED], row: |obj, _| [name(obj), obj["metadata"]["creationTimestamp"].clone()] };

pub(super) const ROLE_BINDING: Table<6> = Table {
    columns: [
        NAME,
        REF,
        AGE,
        ("Users", "string", 1, "Users in the roleBinding"),
        ("Groups", "string", 1, "Groups in the roleBinding"),
        ("ServiceAccounts", "string", 1, "ServiceAccounts in the roleBinding"),
    ],
    row: binding,
};

pub(super) const CLUSTER_ROLE_BINDING: Table<6> = Table {
    columns: [
        NAME,
        REF,
        AGE,
        ("Users", "string", 1, "Users in the clusterRoleBinding"),
        ("Groups", "string", 1, "Groups in the clusterRoleBinding"),
        ("ServiceAccounts", "string", 1, "ServiceAccounts in the clusterRoleBinding"),
    ],
    row: binding,
};

fn binding(obj: &Value, now: Timestamp) -> [Value; 6] {
    let role = &obj["roleRef"];
    let of = |kind: &str, shown: fn(&Value) -> String| -> Value {
        let found = items(obj, "subjects").iter().filter(|subject| text(subject, "kind") == kind);
        found.map(shown).collect::<Vec<_>>().join(", ").into()
    };
    let plain = |subject: &Value| text(subject, "name").to_owned();
    [
        name(obj),
        format!("{}/{}", text(role, "kind"), text(role, "name")).into(),
        age(obj, now),
        of("User", plain),
        of("Group", plain),
        of("ServiceAccount", |subject| format!("{}/{}", text(subject, "namespace"), text(subject, "name"))),
    ]
}
