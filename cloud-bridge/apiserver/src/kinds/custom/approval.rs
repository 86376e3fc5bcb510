//! Groups that a definition may not use: those of the built-in resources, and without an approval those of the
//! Kubernetes community (apiextensions' api-approved policy).

use serde_json::Value;

use super::STORAGE;
use crate::kinds::table;
use apimachinery::field::FieldError;

const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Whether names of this group are the community's to give.
fn protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}

/// The error of a definition's approval; `None` for groups that need none.
fn approval(definition: &Value) -> Option<FieldError> {
    if !protected(definition["spec"]["group"].as_str().unwrap_or_default()) {
        return None;
    }
    let path = format!("metadata.annotations[{ANNOTATION}]");
    let given = definition["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
    let is_url = || given.parse::<http::Uri>().is_ok_and(|url| url.scheme().is_some() && url.host().is_some());
    if given.is_empty() {
        let why = format!("protected groups must have approval annotation {ANNOTATION:?}, {SEE}");
        Some(FieldError::required(path, &why))
    } else if given.starts_with("unapproved") || is_url() {
        None
    } else {
        let why = format!(
            "protected groups must have approval annotation {ANNOTATION:?} with either a URL or a reason starting with \"unapproved\", {SEE}"
        );
        Some(FieldError::invalid(path, &given.into(), &why))
    }
}

/// Judges a new definition. Its objects must not be stored among those of a built-in resource, for they go with it.
pub(crate) fn create(definition: &Value, errors: &mut Vec<FieldError>) {
    let spec = &definition["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    if table::has(group, plural) || STORAGE.split_once('.') == Some((plural, group)) {
        errors.push(FieldError::forbidden("spec.group", "a built-in resource of this group has the same plural"));
    }
    errors.extend(approval(definition));
}

/// Validates a change: an existing error may stay.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let wrong = approval(new);
    if wrong != approval(old) {
        errors.extend(wrong);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(group: &str, plural: &str, approved: Option<&str>) -> Vec<String> {
        let mut definition = json!({"metadata": {}, "spec": {"group": group, "names": {"plural": plural}}});
        if let Some(approved) = approved {
            definition["metadata"]["annotations"] = json!({ANNOTATION: approved});
        }
        let mut errors = Vec::new();
        create(&definition, &mut errors);
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn groups_of_others_are_not_taken() {
        let annotation = format!("metadata.annotations[{ANNOTATION}]");
        for (group, approved, wrong) in [
            ("example.com", None, false),
            ("myk8s.io", None, false),
            ("k8s.io", None, true),
            ("sigs.k8s.io", None, true),
            ("kubernetes.io", None, true),
            ("x.kubernetes.io", Some(""), true),
            ("x.k8s.io", Some("because"), true),
            ("x.k8s.io", Some("unapproved, an experiment"), false),
            ("x.k8s.io", Some("https://github.com/kubernetes/kubernetes/pull/1"), false),
        ] {
            let expected: &[String] = if wrong { std::slice::from_ref(&annotation) } else { &[] };
            assert_eq!(told(group, "widgets", approved), expected, "{group} {approved:?}");
        }
        assert_eq!(told("coordination.k8s.io", "leases", Some("unapproved")), ["spec.group"]);
        assert_eq!(told("apiextensions.k8s.io", "customresourcedefinitions", Some("unapproved")), ["spec.group"]);
        assert_eq!(told("coordination.k8s.io", "others", Some("unapproved")), Vec::<String>::new());
    }

    #[test]
    fn what_was_taken_before_may_stay() {
        let old = json!({"metadata": {}, "spec": {"group": "x.k8s.io"}});
        let approved = json!({"metadata": {"annotations": {ANNOTATION: "unapproved"}}, "spec": {"group": "x.k8s.io"}});
        let told = |new: &Value, old: &Value| {
            let mut errors = Vec::new();
            update(new, old, &mut errors);
            errors.len()
        };
        assert_eq!((told(&old, &old), told(&approved, &old), told(&old, &approved)), (0, 0, 1));
    }
}
