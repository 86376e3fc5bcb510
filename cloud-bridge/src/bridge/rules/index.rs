//! Which rules are valid, what each does, and which node gets which. Pure: events of two watches in, routes out. The
//! order in which rules and endpoints arrive does not matter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::json;

use super::paths::{behind, rank, shape};
use super::route::{Route, Source};
use super::view::{Endpoint, Rule};
use crate::bridge::followed::{self, News};
use crate::bridge::name::Name;
use crate::bridge::slim::made_object;
use crate::bridge::told::kinds::{Kind, RULES_API};
use crate::bridge::world::{Group, Told};

/// Maximum number of rules whose source is one node: each may have messages under way.
pub(super) const OF_NODE: usize = 32;

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
            let mut made = Route::of(name, rule, &self.endpoints).map(Arc::new);
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
        self.paths.values_mut().for_each(|routes| routes.sort_by_key(|route| route.path().map(rank)));
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

#[cfg(test)]
mod tests;
