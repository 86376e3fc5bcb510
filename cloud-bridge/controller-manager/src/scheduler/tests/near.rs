//! Pods near each other and apart.

use serde_json::{Value, json};

use super::{Site, cpu, in_vain, with};

fn term(app: &str) -> Value {
    json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}})
}

fn required(kind: &str, terms: Value) -> Value {
    with(cpu("10m"), "affinity", json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}))
}

fn preferred(kind: &str, term: Value) -> Value {
    let list = json!([{"weight": 100, "podAffinityTerm": term}]);
    with(cpu("10m"), "affinity", json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution": list}}))
}

fn app(site: &mut Site, name: &str, app: &str, node: Option<&str>, spec: Value) {
    let spec = node.map_or(spec.clone(), |node| with(spec, "nodeName", node.into()));
    site.object(name, json!({"labels": {"app": app}}), json!({"spec": spec}));
}

fn site() -> Site {
    let mut site = Site::default();
    site.node("a", json!({}));
    site.node("b", json!({}));
    site.cluster.picture.namespaces.insert("default".to_owned(), json!({"team": "red"}));
    site
}

#[test]
fn a_pod_goes_to_those_it_wants_to_be_near_to() {
    let mut site = site();
    app(&mut site, "p", "web", None, required("podAffinity", json!([term("db")])));
    let text = "0/2 nodes are available: 2 node(s) didn't match pod affinity rules.";
    assert_eq!(site.only(), Err(format!("{text} {}", in_vain(2, 0))));
    app(&mut site, "db", "db", Some("b"), cpu("1"));
    assert_eq!(site.only(), Ok("b".to_owned()));
}

#[test]
fn the_first_of_those_that_want_to_be_together_goes_anywhere() {
    let mut site = site();
    app(&mut site, "p", "web", None, required("podAffinity", json!([term("web")])));
    let first = site.only().unwrap();
    app(&mut site, "q", "web", None, required("podAffinity", json!([term("web")])));
    assert_eq!(site.only().unwrap(), first);
}

#[test]
fn pods_stay_apart_whoever_of_the_two_says_so() {
    let mut site = site();
    app(&mut site, "p", "web", Some("a"), required("podAntiAffinity", json!([term("web")])));
    app(&mut site, "q", "web", None, cpu("10m"));
    assert_eq!(site.only(), Ok("b".to_owned()));
    app(&mut site, "r", "web", None, required("podAntiAffinity", json!([term("web")])));
    let text = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.";
    assert_eq!(site.only(), Err(format!("{text} {}", in_vain(2, 2))));
    app(&mut site, "s", "web", None, with(cpu("10m"), "nodeSelector", json!({"disk": "a"})));
    let text = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, \
                1 node(s) didn't satisfy existing pods anti-affinity rules.";
    assert_eq!(site.only(), Err(format!("{text} {}", in_vain(2, 1))));
    site.cluster.pod_gone(&super::key("p"));
    assert_eq!(site.only(), Ok("a".to_owned()), "the older one, which keeps the other off now");
}

#[test]
fn terms_are_about_namespaces() {
    let of = |more: Value| {
        let mut one = term("db");
        for (field, value) in more.as_object().into_iter().flatten() {
            one = with(one, field, value.clone());
        }
        required("podAntiAffinity", json!([one]))
    };
    let cases = [
        (json!({}), true),
        (json!({"namespaces": ["other"]}), false),
        (json!({"namespaces": ["other", "default"]}), true),
        (json!({"namespaceSelector": {}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "red"}}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}), false),
        (json!({"labelSelector": null}), false),
    ];
    for (more, kept_off) in cases {
        let mut site = site();
        app(&mut site, "db", "db", Some("a"), cpu("10m"));
        site.there("load", "b", cpu("1"));
        app(&mut site, "p", "web", None, of(more.clone()));
        assert_eq!(site.only().unwrap() == "b", kept_off, "{more}");
    }
}

#[test]
fn cached_counts_follow_pods_and_labels_of_nodes() {
    let mut site = Site::default();
    for (name, zone) in [("a", "x"), ("b", "y"), ("c", "y")] {
        site.labelled(name, json!({"zone": zone}), json!({}));
    }
    let apart = |site: &mut Site, name: &str| {
        let term = with(term("web"), "topologyKey", "zone".into());
        app(site, name, "web", None, required("podAntiAffinity", json!([term])));
        site.only()
    };
    assert_eq!([apart(&mut site, "p"), apart(&mut site, "q")], [Ok("a".to_owned()), Ok("b".to_owned())]);
    apart(&mut site, "r").unwrap_err();
    site.labelled("b", json!({"zone": "z"}), json!({}));
    assert_eq!(site.only(), Ok("c".to_owned()), "the pod of node b counts in zone z");
    site.cluster.pod_gone(&super::key("p"));
    assert_eq!(apart(&mut site, "s"), Ok("a".to_owned()));
    site.cluster.node_gone("b");
    site.labelled("d", json!({"zone": "z"}), json!({}));
    assert_eq!(apart(&mut site, "t"), Ok("d".to_owned()), "node b is unknown");
    site.labelled("b", json!({"zone": "w"}), json!({}));
    apart(&mut site, "u").unwrap_err();
}

#[test]
fn cached_counts_follow_labels_of_namespaces() {
    let mut site = Site::default();
    site.node("a", json!({}));
    let apart = |site: &mut Site, name: &str| {
        let term = with(term("web"), "namespaceSelector", json!({"matchLabels": {"team": "red"}}));
        app(site, name, "web", None, required("podAntiAffinity", json!([term])));
        site.only()
    };
    assert!(apart(&mut site, "p").is_ok() && apart(&mut site, "q").is_ok());
    assert!(site.cluster.picture.namespace("default".to_owned(), json!({"team": "red"})));
    let told = apart(&mut site, "r").unwrap_err();
    assert!(told.contains("didn't match pod anti-affinity rules"), "{told}");
}

#[test]
fn what_is_preferred_decides_among_nodes_that_fit() {
    for (kind, node) in [("podAffinity", "a"), ("podAntiAffinity", "b")] {
        let mut site = site();
        app(&mut site, "db", "db", Some("a"), cpu("10m"));
        let load = if node == "a" { "a" } else { "b" };
        site.there("load", load, cpu("1"));
        app(&mut site, "p", "web", None, preferred(kind, term("db")));
        assert_eq!(site.only(), Ok(node.to_owned()), "{kind}");
        // The preferences of existing pods count too.
        let mut site = self::site();
        app(&mut site, "db", "db", Some("a"), preferred(kind, term("web")));
        site.there("load", load, cpu("1"));
        app(&mut site, "p", "web", None, cpu("10m"));
        assert_eq!(site.only(), Ok(node.to_owned()), "{kind} of the other");
    }
}
