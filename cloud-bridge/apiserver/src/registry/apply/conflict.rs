//! Conflicts of an applier with other owners, in the API server's words
//! (apimachinery pkg/util/managedfields/internal/conflict.go).

use crate::patch::field_set::FieldSet;
use crate::registry::managed_fields::entries::{Entries, Owner};
use crate::resource::status::ApiError;

/// How many paths of one owner an answer names.
const PATHS_MAX: usize = 100;

/// The fields of each owner that an apply would change.
pub(super) fn find(entries: &Entries, written: &FieldSet) -> Vec<(Owner, FieldSet)> {
    let theirs = entries.0.iter().map(|entry| (entry.owner.clone(), entry.set.intersection(written)));
    theirs.filter(|(_, fields)| !fields.is_empty()).collect()
}

/// 409 with every owner and path.
pub(super) fn refusal(conflicts: &[(Owner, FieldSet)]) -> ApiError {
    let mut told: Vec<(String, Vec<String>, usize)> =
        conflicts.iter().map(|(owner, fields)| (owner.shown(), fields.shown(PATHS_MAX), fields.count())).collect();
    told.sort();
    let count: usize = told.iter().map(|(_, _, count)| count).sum();
    let list = match told.as_slice() {
        [(owner, paths, 1)] => format!("conflict with {owner}: {}", paths.concat()),
        many => {
            let one = |(owner, paths, count): &(String, Vec<String>, usize)| {
                let more = count.saturating_sub(paths.len());
                let rest = if more > 0 { format!("\n- and {more} more") } else { String::new() };
                format!("conflicts with {owner}:\n- {}{rest}", paths.join("\n- "))
            };
            many.iter().map(one).collect::<Vec<_>>().join("\n")
        }
    };
    let plural = if count == 1 { "" } else { "s" };
    let mut error = ApiError::bad_request(format!("Apply failed with {count} conflict{plural}: {list}"));
    error.code = 409;
    error.reason = "Conflict";
    for (owner, paths, _) in &told {
        for path in paths {
            error = error.with_cause("FieldManagerConflict", &format!("conflict with {owner}"), path);
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::patch::budget::Budget;
    use crate::registry::managed_fields::entries::Operation;

    #[test]
    fn conflicts_name_owner_and_path() {
        let set = |value| FieldSet::decode(&value, &mut Budget::default()).unwrap().unwrap();
        let mut entries = Entries::default();
        let owner = |manager: &str, operation, subresource: &str| Owner {
            manager: manager.to_owned(),
            operation,
            api_version: "apps/v1".to_owned(),
            subresource: subresource.to_owned(),
        };
        let replicas = set(json!({"f:spec": {"f:replicas": {}}}));
        entries.add(owner("kubectl", Operation::Update, "scale"), replicas.clone(), "");
        let found = find(&entries, &replicas);
        let told = "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas";
        assert_eq!(refusal(&found).message, told);
        entries.add(owner("a", Operation::Apply, ""), set(json!({"f:spec": {"f:paused": {}}})), "");
        let found = find(&entries, &set(json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})));
        let told = "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.paused\nconflicts with \"kubectl\" with subresource \"scale\" using apps/v1:\n- .spec.replicas";
        assert_eq!(refusal(&found).message, told);
        assert!(find(&entries, &set(json!({"f:data": {}}))).is_empty());
    }
}
