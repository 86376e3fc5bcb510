//! Tests of which rules are valid, and what nodes receive of them.

use super::*;
use crate::bridge::rules::{EndpointType, Target};

fn name(name: &str) -> Name {
    ("ns".into(), name.into())
}

fn rule(source: &str, from: &[(&str, &str)], target: &str, to: &[(&str, &str)]) -> Rule {
    let fields = |fields: &[(&str, &str)]| {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    Rule {
        uid: format!("{source}{from:?}{target}{to:?}").into(),
        source: source.into(),
        target: target.into(),
        source_resource: fields(from),
        target_resource: fields(to),
        priority: 3,
        created: 0,
    }
}

fn up(node: &str, topic: &str) -> Rule {
    rule("bus", &[("topic", topic), ("node_name", node)], "rest", &[("resource", "http://a.b:1/c?d")])
}

fn down(path: &str) -> Rule {
    rule("rest", &[("path", path)], "bus", &[("topic", "led/set")])
}

fn index(rules: &[(&str, Rule)]) -> Index {
    let mut index = Index::default();
    for (end, kind) in
        [("rest", EndpointType::Rest), ("bus", EndpointType::Eventbus), ("web", EndpointType::Servicebus(80))]
    {
        index.set_endpoint(name(end), Some(Endpoint { kind }));
    }
    for (of, rule) in rules {
        index.set_rule(name(of), Some(rule.clone()));
    }
    index.settle();
    index
}

#[test]
fn a_node_is_told_of_the_topics_that_its_rules_want() {
    let mut index = index(&[("a", up("n", "temp/#")), ("b", up("m", "/x"))]);
    let group = index.group("n");
    let (key, told) = group.first_key_value().unwrap();
    assert_eq!((group.len(), &*key.kind, &*key.name), (1, "Rule", "a"));
    let body: serde_json::Value = serde_json::from_str(told.text().text()).unwrap();
    assert_eq!((body["topic"].as_str(), body["priority"].as_u64()), (Some("ns/temp/#"), Some(3)));
    assert_eq!(index.group("m").len(), 1);
    index.set_rule(name("a"), Some(up("n", "hum")));
    assert_eq!(index.settle(), BTreeSet::from(["n".into()]));
    assert!(index.settle().is_empty());
    index.set_rule(name("a"), Some(up("m", "hum")));
    assert_eq!(index.settle(), BTreeSet::from(["m".into(), "n".into()]));
    assert!(index.group("n").is_empty());
    index.set_endpoint(name("rest"), None);
    assert_eq!(index.settle(), BTreeSet::from(["m".into()]));
    assert_eq!(index.problems().len(), 2);
    assert_eq!(index.problems()[0].why, "there is no target RuleEndpoint \"rest\" in its namespace");
}

#[test]
fn the_longest_path_that_a_rule_has_is_the_one() {
    let web = rule("rest", &[("path", "led/deep/")], "web", &[("path", "api")]);
    let index = index(&[("a", down("/led")), ("b", web)]);
    let at = |path: &str| index.at_path("ns", path).map(|(route, rest)| (route.name.1.clone(), rest));
    assert_eq!(at("/led"), Some(("a".into(), String::new())));
    assert_eq!(at("/led/x"), Some(("a".into(), "/x".into())));
    assert_eq!(at("/led/deep/y"), Some(("b".into(), "/y".into())));
    assert_eq!(at("/leds"), None);
    assert!(index.at_path("other", "/led").is_none());
    let (route, _) = index.at_path("ns", "/led/deep").unwrap();
    assert_eq!(route.target, Target::Service { port: 80, path: "/api".into() });
}

#[test]
fn path_parameters_match_one_segment() {
    let index = index(&[("a", down("/a/{id}")), ("b", down("/a/{id}/on")), ("c", down("/a/all"))]);
    let at = |path: &str| index.at_path("ns", path).map(|(route, rest)| (route.name.1.clone(), rest));
    assert_eq!(at("/a/7"), Some(("a".into(), String::new())));
    assert_eq!(at("/a/7/off"), Some(("a".into(), "/off".into())));
    assert_eq!(at("/a/7/on/now"), Some(("b".into(), "/now".into())));
    assert_eq!(at("/a/all"), Some(("c".into(), String::new())));
    assert_eq!((at("/a"), at("/a/"), at("/b/7")), (None, None, None));
    let twice = self::index(&[("a", down("/a/{id}")), ("b", down("/a/{name}"))]);
    assert_eq!(twice.problems().len(), 1);
}

#[test]
fn node_receives_allowed_urls_and_each_is_of_the_oldest_rule() {
    let url = |node: &str, created| Rule {
        created,
        ..rule("web", &[("target_url", "http://x"), ("node_name", node)], "rest", &[("resource", "http://a")])
    };
    let index = index(&[("a", url("n", 9)), ("b", Rule { uid: "old".into(), ..url("n", 5) }), ("c", url("m", 7))]);
    let group = index.group("n");
    let (key, told) = group.first_key_value().unwrap();
    let body: serde_json::Value = serde_json::from_str(told.text().text()).unwrap();
    assert_eq!((group.len(), &*key.name, &body["targetUrl"]), (1, "b", &json!("http://x")));
    assert_eq!(index.problems().len(), 1);
    assert_eq!(index.problems()[0].why, "another rule of its namespace has the target_url \"http://x\" of node n");
    assert_eq!(body["created"], 5);
    assert_eq!(index.group("m").len(), 1);
}

#[test]
fn what_cannot_work_says_why() {
    for (wrong, why) in [
        (up("n", "a/#/b"), "is no topic"),
        (up("", "a"), "no node_name"),
        (rule("bus", &[("topic", "a"), ("node_name", "n")], "rest", &[("resource", "ftp://a")]), "is no URL"),
        (rule("bus", &[("topic", "a"), ("node_name", "n")], "rest", &[("resource", "http://u:p@a/")]), "is no URL"),
        (rule("bus", &[("topic", "a"), ("node_name", "n")], "rest", &[]), "targetResource has no resource"),
        (rule("rest", &[("path", "/a")], "bus", &[("topic", "a/+")]), "nothing can be published"),
        (rule("rest", &[("path", "/a")], "rest", &[]), "nothing leads from Rest to Rest"),
        (rule("web", &[("target_url", "http://a")], "rest", &[]), "no node_name"),
        (rule("web", &[("node_name", "n")], "rest", &[("resource", "http://a")]), "no target_url"),
        (rule("web", &[("target_url", "a"), ("node_name", "n")], "bus", &[("topic", "t")]), "nothing leads from"),
        (rule("nobody", &[], "rest", &[]), "no source RuleEndpoint"),
    ] {
        let index = index(&[("r", wrong)]);
        assert!(index.problems().iter().any(|problem| problem.why.contains(why)), "{:?} {why}", index.problems());
        assert!(index.routes.is_empty());
    }
}

#[test]
fn one_path_is_one_rules_and_a_node_has_no_more_than_it_can_bear() {
    let twice = index(&[("a", down("/led")), ("b", down("/led/"))]);
    assert_eq!(twice.at_path("ns", "/led").map(|(route, _)| route.name.1.clone()), Some("a".into()));
    assert_eq!(twice.problems().len(), 1);
    let many: Vec<(String, Rule)> =
        (0..OF_NODE + 3).map(|number| (format!("{number:03}"), up("n", &number.to_string()))).collect();
    let many: Vec<(&str, Rule)> = many.iter().map(|(name, rule)| (&**name, rule.clone())).collect();
    let index = index(&many);
    assert_eq!((index.group("n").len(), index.problems().len()), (OF_NODE, 3));
}
