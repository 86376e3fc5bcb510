//! Which rules are valid, what each does, and which node gets which. Pure: events of two watches in, routes out. The
//! order in which rules and endpoints arrive does not matter.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use edge_protocol::topic::{is_filter, is_topic};
use http::Uri;
use kube::api::DynamicObject;
use serde_json::json;

use super::view::{Endpoint, EndpointType, Rule};
use crate::bridge::followed::{self, News};
use crate::bridge::name::Name;
use crate::bridge::slim::made_object;
use crate::bridge::told::kinds::{Kind, RULES_API};
use crate::bridge::world::{Group, Told};

/// Maximum number of rules whose source is one node: each may have messages under way.
pub(super) const OF_NODE: usize = 32;

/// Source of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Messages of a node's broker that match a filter.
    Topic { node: Box<str>, filter: String },
    /// Requests of programs on a node to this URL, compared as a whole.
    Url { node: Box<str>, url: String },
    /// Requests at the listener for rules, by the prefix of their path after node and namespace.
    Path(String),
}

/// Target of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Url(Uri),
    Topic(String),
    Service { port: u16, path: String },
}

/// A valid rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub name: Name,
    pub uid: Box<str>,
    pub source: Source,
    pub target: Target,
    pub priority: u8,
    /// Seconds since 1970.
    pub created: i64,
}

/// An invalid rule, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) name: Name,
    pub(super) uid: Box<str>,
    pub(super) why: String,
}

/// All known rules and endpoints.
#[derive(Default)]
pub struct Index {
    rules: BTreeMap<Name, Rule>,
    endpoints: BTreeMap<Name, Endpoint>,
    stale: bool,
    routes: HashMap<Box<str>, Arc<Route>>,
    /// Routes by namespace, longest path first.
    paths: HashMap<String, Vec<Arc<Route>>>,
    of_node: BTreeMap<Box<str>, Vec<Arc<Route>>>,
    problems: Vec<Problem>,
    changed: BTreeSet<Box<str>>,
}

impl Index {
    /// Sets the state of a rule; `None`: it was deleted.
    pub fn set_rule(&mut self, name: Name, rule: Option<Rule>) {
        self.stale |= set(&mut self.rules, name, rule);
    }

    /// Sets the state of an endpoint; `None`: it was deleted.
    pub fn set_endpoint(&mut self, name: Name, endpoint: Option<Endpoint>) {
        self.stale |= set(&mut self.endpoints, name, endpoint);
    }

    pub(super) fn list_rules(&mut self, all: BTreeMap<Name, Rule>) {
        self.stale |= self.rules != all;
        self.rules = all;
    }

    pub(super) fn list_endpoints(&mut self, all: BTreeMap<Name, Endpoint>) {
        self.stale |= self.endpoints != all;
        self.endpoints = all;
    }

    /// Applies all changes. Returns the nodes whose groups changed since the last call; the methods below use this
    /// state.
    pub fn settle(&mut self) -> BTreeSet<Box<str>> {
        if std::mem::take(&mut self.stale) {
            self.resolve();
        }
        std::mem::take(&mut self.changed)
    }

    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The rule of this uid, if it is valid.
    pub fn route(&self, uid: &str) -> Option<Arc<Route>> {
        self.routes.get(uid).cloned()
    }

    /// The rule for a path after node and namespace, and the part of the path behind the rule's own.
    pub fn at_path(&self, namespace: &str, path: &str) -> Option<(Arc<Route>, String)> {
        self.paths.get(namespace)?.iter().find_map(|route| {
            let Source::Path(own) = &route.source else { return None };
            behind(own, path).map(|rest| (Arc::clone(route), rest.to_owned()))
        })
    }

    /// The group that a node should hold.
    pub fn group(&self, node: &str) -> Group {
        let object = |route: &Arc<Route>| {
            let what = match &route.source {
                Source::Topic { filter, .. } => ("topic", filter),
                Source::Url { url, .. } => ("targetUrl", url),
                Source::Path(_) => return None,
            };
            let (namespace, name) = route.name.clone();
            let key = Kind::Rule.key(namespace, name);
            // The uid as in objects of the API, from which nodes read it.
            let metadata = json!({"namespace": key.namespace, "name": key.name, "uid": route.uid});
            let body =
                json!({"metadata": metadata, what.0: what.1, "priority": route.priority, "created": route.created});
            Some((key.clone(), Told::new(made_object(key, route.uid.to_string(), body))))
        };
        self.of_node.get(node).into_iter().flatten().filter_map(object).collect()
    }

    fn resolve(&mut self) {
        let old = std::mem::take(&mut self.of_node);
        (self.routes, self.paths, self.problems) = Default::default();
        let (mut taken, mut asked) = (BTreeSet::new(), BTreeSet::new());
        let mut rules: Vec<(&Name, &Rule)> = self.rules.iter().collect();
        // The older of two rules for the same gets it. Programs on a node name URLs without a namespace: the node
        // decides which namespaces are allowed, so it gets one rule of each.
        rules.sort_by_key(|(_, rule)| rule.created);
        for (name, rule) in rules {
            let mut made = route(name, rule, &self.endpoints).map(Arc::new);
            if let Ok(found) = &made {
                let full = |node: &str| self.of_node.get(node).is_some_and(|rules| rules.len() >= OF_NODE);
                match &found.source {
                    Source::Path(path) if !taken.insert((name.0.clone(), shape(path))) => {
                        made = Err(format!("another rule of its namespace has the path {path}"));
                    }
                    Source::Topic { node, .. } | Source::Url { node, .. } if full(node) => {
                        made = Err(format!("node {node} has {OF_NODE} rules already"));
                    }
                    Source::Url { node, url } if !asked.insert((name.0.clone(), node.clone(), url.clone())) => {
                        made = Err(format!("another rule of its namespace has the target_url {url:?} of node {node}"));
                    }
                    _ => {}
                }
            }
            match made {
                Err(why) => self.problems.push(Problem { name: name.clone(), uid: rule.uid.clone(), why }),
                Ok(route) => {
                    match &route.source {
                        Source::Path(_) => self.paths.entry(name.0.clone()).or_default().push(Arc::clone(&route)),
                        Source::Topic { node, .. } | Source::Url { node, .. } => {
                            self.of_node.entry(node.clone()).or_default().push(Arc::clone(&route));
                        }
                    }
                    self.routes.insert(route.uid.clone(), route);
                }
            }
        }
        self.paths.values_mut().for_each(|routes| routes.sort_by_key(|route| rank(route)));
        let nodes = old.keys().chain(self.of_node.keys());
        let changed = nodes.filter(|node| old.get(*node) != self.of_node.get(*node)).cloned();
        self.changed.extend(changed.collect::<Vec<_>>());
    }
}

/// The index as [`followed`] feeds it.
impl followed::Index for Index {
    type One = Rule;
    type Other = Endpoint;

    const API: &str = RULES_API;
    const ONE: (&str, &str) = (Kind::Rule.name(), "rules");
    const OTHER: (&str, &str) = ("RuleEndpoint", "ruleendpoints");
    const NAME: &str = "rules";

    fn one(object: &DynamicObject) -> Option<Rule> {
        Rule::of(object)
    }

    fn other(object: &DynamicObject) -> Option<Endpoint> {
        Endpoint::of(object)
    }

    fn take_one(&mut self, news: News<Rule>) {
        match news {
            News::One(name, one) => self.set_rule(name, one),
            News::All(all) => self.list_rules(all),
        }
    }

    fn take_other(&mut self, news: News<Endpoint>) {
        match news {
            News::One(name, one) => self.set_endpoint(name, one),
            News::All(all) => self.list_endpoints(all),
        }
    }

    fn is_changed(&self) -> bool {
        self.stale
    }

    fn take_changed(&mut self) -> BTreeSet<Box<str>> {
        self.settle()
    }

    fn group(&self, node: &str) -> Group {
        self.group(node)
    }
}

fn set<T: PartialEq>(all: &mut BTreeMap<Name, T>, name: Name, now: Option<T>) -> bool {
    if all.get(&name) == now.as_ref() {
        return false;
    }
    match now {
        Some(now) => drop(all.insert(name, now)),
        None => drop(all.remove(&name)),
    }
    true
}

/// The part of a path behind that of a rule, in which `{NAME}` matches one segment (KubeEdge,
/// `pkg/router/utils/path.go`).
fn behind<'a>(own: &str, path: &'a str) -> Option<&'a str> {
    own.split('/').skip(1).try_fold(path, |rest, wanted| {
        let rest = rest.strip_prefix('/')?;
        let (segment, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let fits = segment == wanted || (is_parameter(wanted) && !segment.is_empty());
        fits.then_some(rest)
    })
}

fn is_parameter(segment: &str) -> bool {
    segment.starts_with('{') && segment.ends_with('}')
}

/// Returns the same text for patterns that match the same paths.
fn shape(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').map(|one| if is_parameter(one) { "{}" } else { one }).collect();
    segments.join("/")
}

/// Sort key; the first rule that matches a path gets it: more segments first, then plain ones before parameters.
fn rank(route: &Route) -> (Reverse<usize>, Vec<bool>) {
    let Source::Path(path) = &route.source else { return (Reverse(0), Vec::new()) };
    let segments: Vec<bool> = path.split('/').map(is_parameter).collect();
    (Reverse(segments.len()), segments)
}

/// The route of a rule, or the reason why it is invalid.
fn route(name: &Name, rule: &Rule, endpoints: &BTreeMap<Name, Endpoint>) -> Result<Route, String> {
    let end = |what: &str, of: &str| {
        let end = endpoints.get(&(name.0.clone(), of.to_owned()));
        end.map(|end| end.kind).ok_or_else(|| format!("there is no {what} RuleEndpoint {of:?} in its namespace"))
    };
    let from = |field: &str| {
        let value = rule.source_resource.get(field).filter(|value| !value.is_empty());
        value.cloned().ok_or_else(|| format!("sourceResource has no {field}"))
    };
    let to = |field: &str| {
        let value = rule.target_resource.get(field).filter(|value| !value.is_empty());
        value.cloned().ok_or_else(|| format!("targetResource has no {field}"))
    };
    let path = |path: String| match path.starts_with('/') {
        true => path.trim_end_matches('/').to_owned(),
        false => format!("/{}", path.trim_end_matches('/')),
    };
    let (source, target) = match (end("source", &rule.source)?, end("target", &rule.target)?) {
        (EndpointType::Eventbus, EndpointType::Rest) => {
            let filter = format!("{}/{}", name.0, from("topic")?.trim_start_matches('/'));
            if !is_filter(&filter) {
                return Err(format!("{filter:?} is no topic"));
            }
            (Source::Topic { node: from("node_name")?.into(), filter }, Target::Url(url(&to("resource")?)?))
        }
        (EndpointType::Rest, EndpointType::Eventbus) => {
            let topic = to("topic")?;
            if !is_topic(&topic) {
                return Err(format!("nothing can be published to {topic:?}"));
            }
            (Source::Path(path(from("path")?)), Target::Topic(topic))
        }
        (EndpointType::Rest, EndpointType::Servicebus(port)) => {
            (Source::Path(path(from("path")?)), Target::Service { port, path: path(to("path")?) })
        }
        (EndpointType::Servicebus(_), EndpointType::Rest) => (
            Source::Url { node: from("node_name")?.into(), url: from("target_url")? },
            Target::Url(url(&to("resource")?)?),
        ),
        (source, target) => return Err(format!("nothing leads from {source:?} to {target:?}")),
    };
    Ok(Route {
        name: name.clone(),
        uid: rule.uid.clone(),
        source,
        target,
        priority: rule.priority,
        created: rule.created,
    })
}

fn url(text: &str) -> Result<Uri, String> {
    let wrong = || format!("{text:?} is no URL with http or https and a host");
    let url: Uri = text.parse().map_err(|_| wrong())?;
    let sound = matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|host| !host.is_empty());
    // Every user who may read rules would see a name and a password in it.
    let plain = url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if sound && plain { Ok(url) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
