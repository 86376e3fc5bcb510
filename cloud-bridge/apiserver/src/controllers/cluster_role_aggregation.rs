//! Roles that gather the rules of others by their labels
//! (K8s pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go).

use std::collections::{BTreeMap, HashSet};

use sampan_json::SetField;
use serde_json::Value;

use super::queue::Queue;
use super::runner::{Controller, Seen, Turn};
use crate::auth::rbac::{CLUSTER_ROLES, Policy, RoleRef, Rule};
use crate::resource::status::ApiResult;
use crate::state::Inner;
use apimachinery::json::{items, remove};
use apimachinery::key::ObjectKey;
use apimachinery::selector::selects;

/// Known state of a role.
#[derive(Debug, PartialEq)]
struct Known {
    labels: Value,
    /// Selectors of the roles that it aggregates.
    selectors: Vec<Value>,
}

impl Known {
    fn of(role: &Value) -> Self {
        let selectors = items(&role["aggregationRule"], "clusterRoleSelectors").to_vec();
        Self { labels: role["metadata"]["labels"].clone(), selectors }
    }

    fn gathers(&self, other: &Self) -> bool {
        self.selectors.iter().any(|selector| selects(selector, &other.labels))
    }
}

/// What there is to do about a role, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// This role was written: others may have to aggregate again.
    Changed(String),
    Gather(String),
}

/// Keeps the rules of gathering roles.
#[derive(Default)]
pub(super) struct ClusterRoleAggregation {
    roles: BTreeMap<String, Known>,
}

impl Controller for ClusterRoleAggregation {
    type Key = Task;

    const NAME: &'static str = "aggregating roles";

    fn storages(_: &Inner) -> Vec<String> {
        vec![CLUSTER_ROLES.into()]
    }

    fn keys(_: &Inner, seen: &Seen<'_>, queue: &Queue<Task>) {
        if seen.storage == CLUSTER_ROLES {
            queue.add(Task::Changed(seen.key.name.clone()));
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, Task>, task: &Task) -> ApiResult<()> {
        let (Task::Changed(name) | Task::Gather(name)) = task;
        let current = turn.store.get(CLUSTER_ROLES, &ObjectKey::cluster(name))?;
        if let Task::Changed(_) = task {
            let now = current.as_ref().map(|role| Known::of(role.value()));
            self.changed(name, now).into_iter().for_each(|name| turn.queue.add(Task::Gather(name)));
            return Ok(());
        }
        let Some(current) = current else { return Ok(()) };
        // By its present selectors, because a write may not have been handled yet.
        let selectors = Known::of(current.value()).selectors;
        let Some(rules) = self.gather(name, &selectors, &turn.inner.authorizer.rbac.policy()) else { return Ok(()) };
        if Rule::all(current.value()) == rules {
            return Ok(());
        }
        let mut role = current.value().clone();
        if rules.is_empty() {
            remove(&mut role, "rules");
        } else {
            role.set("rules", rules.iter().map(Rule::value).collect());
        }
        turn.store.write(CLUSTER_ROLES, role, Some(&current), None)?;
        Ok(())
    }
}

impl ClusterRoleAggregation {
    /// Applies the present state of a role and returns the roles that must aggregate again: itself, and those that
    /// aggregated it before or do so now.
    fn changed(&mut self, name: &str, now: Option<Known>) -> Vec<String> {
        let before = self.roles.get(name);
        let gathers = |one: &Known| before.into_iter().chain(&now).any(|role| one.gathers(role));
        let others = self.roles.iter().filter(|(other, one)| *other != name && gathers(one));
        let mut all: Vec<String> = others.map(|(name, _)| name.clone()).collect();
        // Only now: the previous state is needed again if this is interrupted.
        match now {
            Some(now) => {
                if !now.selectors.is_empty() {
                    all.push(name.to_owned());
                }
                self.roles.insert(name.to_owned(), now);
            }
            None => drop(self.roles.remove(name)),
        }
        all
    }

    /// The rules that a role gathers, each once: by its selectors, then by the names of the roles. Never its own. `None` for
    /// a role that gathers none.
    fn gather(&self, name: &str, selectors: &[Value], policy: &Policy) -> Option<Vec<Rule>> {
        if selectors.is_empty() {
            return None;
        }
        let (mut rules, mut seen) = (Vec::new(), HashSet::new());
        for selector in selectors {
            let others = self.roles.iter().filter(|(other, known)| *other != name && selects(selector, &known.labels));
            for rule in others.flat_map(|(other, _)| {
                policy.rules("", &RoleRef::cluster(other)).into_iter().flat_map(|rules| rules.iter())
            }) {
                if seen.insert(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        Some(rules)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Runs the controller until nothing changes.
    struct World {
        controller: ClusterRoleAggregation,
        policy: Policy,
        roles: BTreeMap<String, Value>,
        writes: usize,
    }

    impl World {
        fn new() -> Self {
            let (controller, roles) = (ClusterRoleAggregation::default(), BTreeMap::new());
            Self { controller, policy: Policy::default(), roles, writes: 0 }
        }

        fn set(&mut self, name: &str, role: Option<Value>) {
            let before = match &role {
                Some(role) => self.roles.insert(name.to_owned(), role.clone()),
                None => self.roles.remove(name),
            };
            self.policy.change(CLUSTER_ROLES, before.as_ref(), role.as_ref());
            for name in self.controller.changed(name, role.as_ref().map(Known::of)) {
                let selectors = Known::of(&self.roles[&name]).selectors;
                let Some(rules) = self.controller.gather(&name, &selectors, &self.policy) else { continue };
                let mut role = self.roles[&name].clone();
                if Rule::all(&role) != rules {
                    self.writes += 1;
                    assert!(self.writes < 100, "it never ends");
                    role.set("rules", rules.iter().map(Rule::value).collect());
                    self.set(&name, Some(role));
                }
            }
        }

        fn verbs(&self, name: &str) -> Vec<String> {
            Rule::all(&self.roles[name]).iter().flat_map(|rule| rule.verbs.iter().map(ToString::to_string)).collect()
        }
    }

    fn role(name: &str, label: &str, of: &[&str], verbs: &[&str]) -> Option<Value> {
        let rules: Vec<Value> =
            verbs.iter().map(|verb| json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]})).collect();
        let mut role = json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": rules});
        if !of.is_empty() {
            let selectors: Vec<Value> = of.iter().map(|label| json!({"matchLabels": {*label: "true"}})).collect();
            role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        }
        Some(role)
    }

    #[test]
    fn rules_are_gathered_and_given_up() {
        let mut world = World::new();
        world.set("all", role("all", "x", &["a", "b"], &["own"]));
        assert_eq!(world.verbs("all"), [""; 0], "what is written into it by hand does not stay");
        world.set("z", role("z", "a", &[], &["get", "list"]));
        world.set("y", role("y", "a", &[], &["watch", "get"]));
        world.set("b", role("b", "b", &[], &["delete"]));
        assert_eq!(world.verbs("all"), ["watch", "get", "list", "delete"]);
        world.set("y", role("y", "other", &[], &["watch", "get"]));
        assert_eq!(world.verbs("all"), ["get", "list", "delete"]);
        world.set("z", None);
        assert_eq!(world.verbs("all"), ["delete"]);
        // A role that no longer aggregates keeps its rules.
        world.set("all", role("all", "x", &[], &["delete"]));
        world.set("b", None);
        assert_eq!(world.verbs("all"), ["delete"]);
    }

    #[test]
    fn roles_that_gather_each_other_or_themselves_come_to_an_end() {
        let mut world = World::new();
        world.set("self", role("self", "a", &["a"], &["own"]));
        assert_eq!(world.verbs("self"), [""; 0]);
        world.set("one", role("one", "b", &["c"], &[]));
        world.set("two", role("two", "c", &["b", "d"], &[]));
        world.set("three", role("three", "c", &["b"], &[]));
        world.set("x", role("x", "d", &[], &["get", "list"]));
        for name in ["one", "two", "three"] {
            assert_eq!(world.verbs(name), ["get", "list"], "{name}");
        }
        // A selector without a word means everyone else.
        let mut every = role("every", "e", &["a"], &[]).unwrap();
        every["aggregationRule"]["clusterRoleSelectors"] = json!([{}]);
        world.set("every", Some(every));
        assert_eq!(world.verbs("every"), ["get", "list"]);
    }

    /// The last write may only be known to the index of rules: the task that handles it failed, and is retried.
    #[test]
    fn a_role_that_gathers_no_more_keeps_its_rules_before_that_is_taken_in() {
        let mut world = World::new();
        world.set("all", role("all", "x", &["a"], &[]));
        world.set("z", role("z", "a", &[], &["get"]));
        let plain = role("all", "x", &[], &["own"]).unwrap();
        assert_eq!(world.controller.gather("all", &Known::of(&plain).selectors, &world.policy), None);
        let gathers = role("z", "a", &["x"], &[]).unwrap();
        let rules = world.controller.gather("z", &Known::of(&gathers).selectors, &world.policy).unwrap();
        assert_eq!(rules.len(), 1, "what a role gathers is what it says, not what was known of it");
    }
}
