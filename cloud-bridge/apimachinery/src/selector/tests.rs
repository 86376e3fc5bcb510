//! What `selector` promises, case by case.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{FieldSelector, LabelSelector, SIZE_MAX, size};
use crate::json::text;

/// A kind without fields to select by.
fn none<'a>(_: &'a Value, _: &str) -> Option<Cow<'a, str>> {
    None
}

#[test]
fn label_operators() {
    let object = json!({"metadata": {"labels": {"a": "b", "n": "5", "k8s.io/x": ""}}});
    for yes in [
        "",
        "a=b",
        "a==b",
        "a",
        "!z",
        "a!=c",
        "z!=c",
        "a in (b,c)",
        "z notin (b)",
        "n>4",
        "n<6",
        "a=b,n,!z",
        "k8s.io/x=",
        "k8s.io/x",
        " a = b , n ",
    ] {
        assert!(LabelSelector::parse(yes).unwrap().matches(&object), "{yes}");
    }
    for no in ["a=c", "z", "!a", "a in (c)", "a notin (b)", "n>5", "a>1", "a="] {
        assert!(!LabelSelector::parse(no).unwrap().matches(&object), "{no}");
    }
    for bad in ["a=b=c", "a in b", "a,", "=b", "a b", "-a=b", "n>x"] {
        assert!(LabelSelector::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn field_terms() {
    let object = json!({"metadata": {"name": "x", "namespace": "n"}});
    for (text, expected) in
        [("metadata.name=x", true), ("metadata.name!=x", false), ("metadata.name==x,metadata.namespace=n", true)]
    {
        assert_eq!(FieldSelector::parse(text).unwrap().matches(&object, none), expected, "{text}");
    }
    assert!(FieldSelector::parse("nonsense").is_err());
    let selector = FieldSelector::parse("spec.foo=1").unwrap();
    assert_eq!(selector.unsupported(true, none), Some("spec.foo"));
}

#[test]
fn pods_of_other_nodes_are_told_without_parsing() {
    let body = |node: &str| {
        let annotation = json!({"note": r#""nodeName":"n-1.x""#});
        serde_json::to_vec(&json!({"metadata": {"annotations": annotation}, "spec": {"nodeName": node}})).unwrap()
    };
    fn field<'a>(pod: &'a Value, label: &str) -> Option<Cow<'a, str>> {
        (label == "spec.nodeName").then(|| text(&pod["spec"], "nodeName").into())
    }
    for text in
        ["spec.nodeName=n-1.x", "spec.nodeName=", "spec.nodeName!=n-1.x", "spec.nodeName=a\"b", "metadata.name=x"]
    {
        let selector = FieldSelector::parse(text).unwrap();
        for node in ["n-1.x", "n-1.xy", "n-1", "", "a\"b"] {
            let body = body(node);
            let matches = selector.matches(&serde_json::from_slice(&body).unwrap(), field);
            assert!(selector.may_match(&body) || !matches, "{text}: {node:?}");
        }
    }
    let selector = FieldSelector::parse("spec.nodeName=n-1.x").unwrap();
    assert!(selector.may_match(&body("n-1.x")));
    assert!(!selector.may_match(&body("n-1.xy")) && !selector.may_match(&body("")));
}

#[test]
fn selectors_of_metadata_need_no_more() {
    for (selector, alone) in
        [("", true), ("metadata.name=a,metadata.namespace!=b", true), ("metadata.name=a,type=b", false)]
    {
        assert_eq!(FieldSelector::parse(selector).unwrap().is_of_metadata(), alone, "{selector}");
    }
}

#[test]
fn selectors_are_bounded() {
    let of = |count: usize, term: &dyn Fn(usize) -> String| (0..count).map(term).collect::<Vec<_>>().join(",");
    let absent = |n: usize| format!("!k{n}");
    assert!(LabelSelector::parse(&of(SIZE_MAX, &absent)).is_ok());
    let error = LabelSelector::parse(&of(SIZE_MAX + 1, &absent)).unwrap_err();
    assert!(error.contains("more than 4096"), "{error}");
    let value = |n: usize| format!("v{n}");
    assert!(LabelSelector::parse(&format!("k in ({})", of(SIZE_MAX - 1, &value))).is_ok());
    assert!(LabelSelector::parse(&format!("k in ({})", of(SIZE_MAX, &value))).is_err());
    let other = |n: usize| format!("metadata.name!=x{n}");
    assert!(FieldSelector::parse(&of(SIZE_MAX + 1, &other)).is_err());
    let same = |_: usize| "spec.nodeName=n".to_owned();
    let repeated = FieldSelector::parse(&of(SIZE_MAX + 1, &same)).unwrap();
    assert_eq!(repeated, FieldSelector::parse("spec.nodeName=n").unwrap(), "each term is asked for once");
}

#[test]
fn size_counts_requirements_and_values() {
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
        {"key": "c", "operator": "In", "values": ["d", "e"]}, {"key": "f", "operator": "Exists"}]});
    assert_eq!((size(&selector), size(&Value::Null)), (5, 0));
}
