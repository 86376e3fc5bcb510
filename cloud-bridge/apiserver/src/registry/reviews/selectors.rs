//! Selectors in a review: their errors, and the part that an authorizer gets (K8s pkg/apis/authorization/validation,
//! pkg/registry/authorization/util/helpers.go). Unreadable parts are omitted: then the review asks for more than
//! intended, never for less.

use serde_json::Value;

use crate::resource::status::ERRORS_MAX;
use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::{items, present, text};
use apimachinery::names;
use apimachinery::selector::{FieldSelector, LabelSelector};

/// The field that the node authorizer checks.
const NODE: &str = "spec.nodeName";

/// Adds the errors of the selectors in `resourceAttributes`.
pub(super) fn rules(errors: &mut Errors, attributes: &Value) {
    for (selector, labels) in [("fieldSelector", false), ("labelSelector", true)] {
        let Some(given) = present(attributes, selector) else { continue };
        let path = format!("spec.resourceAttributes.{selector}");
        let (raw, requirements) = (text(given, "rawSelector"), items(given, "requirements"));
        if !raw.is_empty() && !requirements.is_empty() {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), &raw.into(), detail));
        }
        if raw.is_empty() && requirements.is_empty() {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), &detail));
        }
        for (i, one) in requirements.iter().enumerate() {
            if errors.len() >= ERRORS_MAX {
                return;
            }
            requirement(errors, &format!("{path}.requirements[{i}]"), one, labels);
        }
    }
}

/// Unknown operators are not an error: a newer client may know more.
fn requirement(errors: &mut Errors, path: &str, requirement: &Value, labels: bool) {
    let (key, values) = (text(requirement, "key"), items(requirement, "values"));
    let at = format!("{path}.values");
    if key.is_empty() && !labels {
        errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
    }
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(at.as_str(), "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(at.as_str(), detail));
        }
        _ => {}
    }
    if labels {
        invalid_text(errors, &format!("{path}.key"), key, names::qualified_name(key));
        for (i, value) in values.iter().filter_map(Value::as_str).enumerate() {
            invalid_text(errors, &format!("{at}[{i}]"), value, names::label_value(value));
        }
    }
}

/// The readable part of a selector: the number of requirements, whether that is all, and the node that it selects.
#[derive(Default, PartialEq, Eq, Debug)]
struct Read {
    some: bool,
    all: bool,
    node: Option<String>,
}

fn fields(selector: &Value) -> Read {
    let raw = text(selector, "rawSelector");
    if !raw.is_empty() {
        let node = |parsed: FieldSelector| parsed.wanted(NODE).map(str::to_owned);
        return FieldSelector::parse(raw)
            .map_or_else(|_| Read::default(), |parsed| Read { some: true, all: true, node: node(parsed) });
    }
    let list = items(selector, "requirements");
    // Field selectors support exactly one value.
    let known = |one: &&Value| matches!(text(one, "operator"), "In" | "NotIn") && items(one, "values").len() == 1;
    let readable: Vec<&Value> = list.iter().filter(known).collect();
    let node = readable.iter().find(|one| text(one, "key") == NODE && text(one, "operator") == "In");
    let node = node.and_then(|one| items(one, "values").first()?.as_str()).map(str::to_owned);
    Read { some: !readable.is_empty(), all: readable.len() == list.len(), node }
}

fn labels(selector: &Value) -> Read {
    let raw = text(selector, "rawSelector");
    if !raw.is_empty() {
        let good = LabelSelector::parse(raw).is_ok();
        return Read { some: good, all: good, node: None };
    }
    let list = items(selector, "requirements");
    let known = |one: &&Value| matches!(text(one, "operator"), "In" | "NotIn" | "Exists" | "DoesNotExist");
    let readable = list.iter().filter(known).count();
    Read { some: readable > 0, all: readable == list.len(), node: None }
}

/// The node that the selectors select, and the errors of unreadable ones.
pub(super) fn read(attributes: &Value) -> (Option<String>, Vec<String>) {
    let (mut node, mut told) = (None, Vec::new());
    for (name, read) in [("fieldSelector", fields as fn(&Value) -> Read), ("labelSelector", labels)] {
        let Some(selector) = present(attributes, name) else { continue };
        let read = read(selector);
        if !read.all {
            let partially = if read.some { "partially " } else { "" };
            told.push(format!("spec.resourceAttributes.{name} {partially}ignored due to parse error"));
        }
        node = node.or(read.node);
    }
    (node, told)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(attributes: Value) -> Vec<String> {
        let mut errors = Errors::new();
        rules(&mut errors, &attributes);
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn requirements_are_whole() {
        let both = |selector: Value| json!({"fieldSelector": selector, "labelSelector": selector});
        assert_eq!(wrong(both(json!({"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}))), [""; 0]);
        assert_eq!(wrong(both(json!({"requirements": [{"key": "a", "operator": "Newer"}]}))), [""; 0]);
        let path = |selector: &str| format!("spec.resourceAttributes.{selector}.requirements[0]");
        let (fields, labels) = (path("fieldSelector"), path("labelSelector"));
        let needed = "Required value: must be specified when `operator` is 'In' or 'NotIn'";
        assert_eq!(
            wrong(both(json!({"requirements": [{"key": "a", "operator": "In"}]}))),
            [format!("{fields}.values: {needed}"), format!("{labels}.values: {needed}")]
        );
        let found = wrong(both(json!({"requirements": [{"operator": "Exists", "values": ["a b"]}]})));
        let forbidden = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
        assert_eq!(
            found[..3],
            [
                format!("{fields}.key: Required value: must be specified"),
                format!("{fields}.values: {forbidden}"),
                format!("{labels}.values: {forbidden}"),
            ]
        );
        assert!(
            found[3].starts_with(&format!("{labels}.key: Invalid value: \"\": name part must be non-empty")),
            "{found:?}"
        );
        assert!(found.last().unwrap().starts_with(&format!("{labels}.values[0]: Invalid value: \"a b\"")), "{found:?}");
        let many: Value = (0..50_000).map(|_| json!({"operator": "In"})).collect();
        assert!(wrong(both(json!({"requirements": many}))).len() < 2 * ERRORS_MAX);
    }

    #[test]
    fn what_cannot_be_read_is_told_and_left_out() {
        let fields = |selector: Value| read(&json!({"fieldSelector": selector}));
        let one = |operator: &str, values: &[&str]| json!({"key": NODE, "operator": operator, "values": values});
        let node = |name: &str| Some(name.to_owned());
        let none: [String; 0] = [];
        let ignored = ["spec.resourceAttributes.fieldSelector ignored due to parse error".to_owned()];
        let partially = ["spec.resourceAttributes.fieldSelector partially ignored due to parse error".to_owned()];
        for (selector, wanted, told) in [
            (json!({"rawSelector": "a!=b,spec.nodeName==n1"}), node("n1"), &none[..]),
            (json!({"rawSelector": "spec.nodeName!=n1"}), None, &none),
            (json!({"rawSelector": "spec.nodeName=n1,wrong"}), None, &ignored),
            (json!({"requirements": [one("In", &["n1"])]}), node("n1"), &none),
            (json!({"requirements": [one("NotIn", &["n1"])]}), None, &none),
            (json!({"requirements": [one("In", &["n1", "n2"])]}), None, &ignored),
            (json!({"requirements": [one("Exists", &[]), one("In", &["n1"])]}), node("n1"), &partially),
            (json!({"requirements": [one("Newer", &[]), one("Newer", &["x"])]}), None, &ignored),
        ] {
            assert_eq!(fields(selector.clone()), (wanted, told.to_vec()), "{selector}");
        }
        let labels = |selector: Value| read(&json!({"labelSelector": selector})).1;
        assert_eq!(
            labels(json!({"rawSelector": "a in (b"})),
            ["spec.resourceAttributes.labelSelector ignored due to parse error"]
        );
        let mixed = json!({"requirements": [{"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Newer"}]});
        assert_eq!(labels(mixed), ["spec.resourceAttributes.labelSelector partially ignored due to parse error"]);
        assert_eq!(read(&Value::Null), (None, vec![]));
    }
}
